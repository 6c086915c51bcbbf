// Compares pipeline schedules over numbers of ranks, micro-batches and virtual stages. Simulates
// each and trains it for a few steps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/results/slow_ranks.h"
#include "collectives/transport/launch/launch.h"
#include "parallel/pipeline/schedules/schedules.h"
#include "parallel/plan/options.h"
#include "parallel/plan/result.h"

namespace lockstep {

struct PipelineBenchOptions {
  TrainOptions train = [] {
    TrainOptions options;
    options.technique = "pipeline";
    options.steps = 4;
    return options;
  }();
  std::vector<std::string> schedules;
  std::vector<int> ranks = {4}, micro_batches = {4, 8, 16}, virtual_stages = {2};
  int micro_batch_size = 1;  // sequences
  PassTimes times;           // for simulation without training
  bool only_simulates = false;
};

struct PipelinePoint {
  std::string schedule;
  PipelineShape shape;
  double simulated_fraction = 0;
  std::optional<double> expected_fraction;  // by the closed form
  std::vector<int> in_flight;               // by rank
  // Measured in training.
  std::optional<double> measured_fraction, replayed_fraction;
  double step_seconds = 0, tokens_per_second = 0;
  std::vector<std::int64_t> peak_activation_bytes;  // by rank
  SlowRanks trained = {};                           // each rank's own time, if trained
  std::string skipped;                              // the reason if there are no figures
};

// Returns one point for each schedule and shape, and prints a line for each. Shapes that a schedule
// does not support are skipped, with the reason. Throws what training throws.
std::vector<PipelinePoint> bench_pipeline(const PipelineBenchOptions& options,
                                          const LaunchOptions& world);
// As Google Benchmark writes them.
std::string pipeline_json(const std::vector<PipelinePoint>& points,
                          const PipelineBenchOptions& options, const LaunchOptions& world);

}  // namespace lockstep
