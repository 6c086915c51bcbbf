// Compares the ways in which rows travel between ranks that divide experts, in virtual time in which only
// messages take time: the counts, the rows to the experts, and back, of one layer and micro-batch.
// Bytes and messages must equal their closed forms; so must times where all pairs of ranks have
// equally many rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/dtype.h"

namespace lockstep {

// The dispatchers of parallel/expert.
const std::vector<std::string>& moe_methods();

struct MoeBenchOptions {
  std::vector<std::string> methods = moe_methods(), skews = {"even"}, links = {"dgx"};
  std::vector<int> ranks = {16, 64}, per_token = {2, 8};
  std::vector<int> tokens = {1024};  // of a rank
  int experts = 64, width = 4096;    // columns of a row
  DType dtype = DType::bf16;
  double capacity = 1.25;  // of padded: beyond it tokens are dropped
  std::uint64_t seed = 1;
};

struct MoePoint {
  std::string method, skew, link;
  int ranks = 1, per_token = 1, tokens = 0;
  // Of the slowest rank: the counts, with the routers' choices and weights where rows need them; the rows
  // to the experts, and back.
  double counts_seconds = 0, dispatch_seconds = 0, combine_seconds = 0;
  std::optional<double> expected_dispatch_seconds;  // where the closed form is exact
  // To the experts: what the busiest rank sends, the ranks' mean, and messages of a rank.
  std::int64_t sent_bytes = 0, mean_sent_bytes = 0, messages = 0;
  double dropped_share = 0;  // of the choices
  std::string skipped;       // the reason if there are no figures

  double seconds() const { return counts_seconds + dispatch_seconds + combine_seconds; }
};

// Prints a line for each point. Throws Error: bad_input for unknown names, wrong_result if a count or a
// time differs from its closed form.
std::vector<MoePoint> bench_moe(const MoeBenchOptions& options);
void print_moe_header();
void print_moe_point(const MoePoint& point);

// Where the rows of a method take as long to the experts as with all_to_all, between neighbouring
// points that differ in one field only: latency (between nodes, seconds), tokens, per_token or
// ranks. By a straight line between the points, which is exact for latency and tokens of even rows.
struct MoeCrossover {
  std::string method, over;
  double at = 0;
  bool is_faster_above = false;  // the method than all_to_all
  // The closed form: two levels are faster above a latency between nodes of the time of the bytes of
  // a pair inside.
  std::optional<double> expected;
  // Values of the other fields; for `over`, the previous point's.
  std::string skew, link;
  int ranks = 1, per_token = 1, tokens = 0;
};
std::vector<MoeCrossover> moe_crossovers(const std::vector<MoePoint>& points,
                                         const MoeBenchOptions& options);

// How many times as long a layer's rows take as with even ones, both ways.
struct MoePrice {
  std::string method, skew, link;
  int ranks = 1, per_token = 1, tokens = 0;
  double times = 1;
};
std::vector<MoePrice> prices_of_skew(const std::vector<MoePoint>& points);

// Points, crossovers, prices and pairs (moe_pairs.h) as Google Benchmark's JSON.
struct MoePairPoint;
std::string moe_json(const std::vector<MoePoint>& points, const MoeBenchOptions& options,
                     const std::vector<MoePairPoint>& pairs);

}  // namespace lockstep
