// Compares the ways in which ranks share the tokens of every sequence: bytes, pairs of queries and
// keys, memory and time of a step, next to the closed forms. A point is trained, or simulated in
// virtual time without data, on processors of a given rate.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/results/slow_ranks.h"
#include "collectives/transport/launch/launch.h"
#include "models/ops/roofline_backend.h"
#include "parallel/plan/options.h"

namespace lockstep {

struct ContextBenchOptions {
  TrainOptions train = [] {
    TrainOptions options;
    options.steps = 3;
    options.global_batch = 1;
    return options;
  }();
  bool simulates = false;
  std::vector<std::string> methods;
  std::vector<int> ranks = {4};
  std::vector<int> lengths = {0}, heads = {0}, kv_heads = {0};  // 0: the model's
  std::vector<std::string> links = {"alpha=10us,beta=1GB/s"};
  int repetitions = 3;       // of training
  Clock clock = Clock::cpu;  // of training
  Roofline roofline;         // of simulation
};

// Returns the methods of parallel/context, and one rank. ulysses-N-ring, for any N, joins groups of
// N ranks by a ring.
const std::vector<std::string>& context_methods();

struct ContextPoint {
  std::string method, link;
  int ranks = 1, heads = 0, kv_heads = 0, length = 0;
  double step_seconds = 0;  // time of the slowest rank; the median, if trained
  double exposed_seconds =
      0;  // the part spent waiting for messages or slower ranks; the ranks' mean
  double tokens_per_second = 0;
  // If simulated: the time of a step in which only attention takes time, and its closed form, the
  // time for the pairs of the busiest rank.
  std::optional<double> attention_seconds, expected_attention_seconds;
  std::vector<std::int64_t> pairs, expected_pairs;  // by rank; empty for one rank
  using ByName = std::map<std::string, std::int64_t>;
  // Bytes per step of the rank that sends most to share sequences, by label.
  ByName sent_bytes, expected_sent_bytes;
  // Peak memory of the rank with the most, by use; expected: only exact closed forms.
  ByName peak_bytes, expected_peak_bytes;
  double scores_bytes = 0;  // one rank: all layers' probabilities, which the plain form keeps
  SlowRanks trained = {};   // each rank's own time, if trained
  std::string skipped;      // the reason if there are no figures

  // The most pairs of a rank over the mean; 1 without pairs.
  double imbalance() const;
};

// Returns the part of all sent bytes that serves to share sequences.
std::int64_t exchanged_bytes(const ContextPoint::ByName& sent);

void print_context_header();
void print_context_point(const ContextPoint& point);

// Prints a line for each point. Throws Error: bad_input for unknown names, wrong_result if a count
// differs from its closed form.
std::vector<ContextPoint> bench_context(const ContextBenchOptions& options);

// The time with contiguous tokens over the time with zig-zag tokens on the same ring.
struct ContextLimit {
  int ranks = 1, heads = 0, kv_heads = 0, length = 0;
  std::string link;
  double measured = 0;  // if only attention takes time, in virtual time
  double expected = 0;  // the same by the closed forms of the pairs
  double limit = 0;     // the limit for long sequences: (2c-1)/c
  double of_step = 0;   // for the whole step
};
std::vector<ContextLimit> context_limits(const std::vector<ContextPoint>& points);

// Where Ulysses and a zig-zag ring are equal, between neighbouring points.
struct ContextCrossover {
  std::string quantity;  // bytes or seconds
  std::string over;      // ranks, length, or link: its bytes per second
  double at = 0;
  bool ulysses_is_less_above = false;
  // Values of the other fields; for `over`, the previous point's.
  int ranks = 1, heads = 0, kv_heads = 0, length = 0;
  std::string link;
};
std::vector<ContextCrossover> context_crossovers(const std::vector<ContextPoint>& points);

// Which rank owns each token of a short sequence, and each rank's pairs, for one head.
struct ContextMask {
  std::string layout;
  int ranks = 1;
  std::vector<int> owners;  // the rank of each position
  std::vector<std::int64_t> pairs;
};
std::vector<ContextMask> context_masks(int ranks);

// Points, limits, crossovers and masks as Google Benchmark's JSON.
std::string context_json(const std::vector<ContextPoint>& points,
                         const ContextBenchOptions& options);

}  // namespace lockstep
