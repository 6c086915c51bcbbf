// Compares sharded data parallelism with DDP and tensor parallelism over numbers of ranks and links:
// bytes sent, peak memory and the time of a step, next to the closed forms. Points are trained,
// simulated in virtual time on processors of a given rate, or only counted, on one rank alone.
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

enum class ShardedMode : std::uint8_t { train, simulate, count };

struct ShardedBenchOptions {
  TrainOptions train = [] {
    TrainOptions options;
    options.steps = 4;
    return options;
  }();
  ShardedMode mode = ShardedMode::train;
  std::vector<std::string> strategies;
  std::vector<int> ranks = {2, 4};
  int micro_batch_size = 1;  // sequences for each rank; all strategies share the global batch
  std::vector<std::string> links = {"alpha=10us,beta=1GB/s"};
  Clock clock = Clock::cpu;  // of training
  Roofline roofline;         // of simulation
};

// ddp, zero-1 to zero-3, fsdp with each prefetch mode, and tp.
const std::vector<std::string>& sharded_strategies();

// The figures of rank 0, and the time of the slowest rank.
struct ShardedPoint {
  std::string strategy, link;
  int ranks = 1;
  std::optional<double> step_seconds;  // the median; none if only counted
  // The time of a simulated step that parallel/predict/timeline.h predicts, if anything is sharded.
  std::optional<double> expected_step_seconds;
  using ByName = std::map<std::string, std::int64_t>;
  ByName sent_bytes, expected_sent_bytes;  // per step, by label
  ByName peak_bytes, expected_peak_bytes;  // by use; expected: only exact closed forms
  // Between steps a rank keeps these parameters, gradients and states of the optimizer; the rest of
  // the peaks are gathered parameters and gradients not yet reduced.
  ByName kept_bytes;
  double paper_bytes = 0;              // kept bytes by the formulas of ZeRO's paper; 0 for tp
  std::optional<double> whole_blocks;  // gathered at peak, if parameters are sharded
  SlowRanks trained = {};              // each rank's own time, if trained
  std::string skipped;                 // the reason if there are no figures

  // Returns the names of counts that differ from their closed forms.
  std::vector<std::string> differences() const;
};

// The link speed at which two strategies take the same time on the same number of ranks.
struct Crossover {
  std::string strategy, reference;  // ddp or tp
  int ranks = 1;
  double bytes_per_s = 0;
  bool is_faster_above = false;  // the strategy, on faster links
};

// Prints a line for each point. Throws Error: bad_input for unknown names, wrong_result if a count
// differs from its closed form.
std::vector<ShardedPoint> bench_sharded(const ShardedBenchOptions& options);
// Between neighbouring link speeds, interpolated on a logarithmic scale.
std::vector<Crossover> crossovers(const std::vector<ShardedPoint>& points);
// Bytes of states that a rank keeps by the formulas of ZeRO's paper, for psi parameters.
double zero_bytes(int stage, double psi, int ranks, DType dtype);
// The points and crossovers as Google Benchmark's JSON.
std::string sharded_json(const std::vector<ShardedPoint>& points,
                         const ShardedBenchOptions& options);

}  // namespace lockstep
