// Runs one plan: trains it on all of its ranks, or simulates a step without data, on all of them or
// on one rank of each kind.
#pragma once

#include <string>
#include <vector>

#include "bench/results/slow_ranks.h"
#include "collectives/transport/launch/launch.h"
#include "models/ops/roofline_backend.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/result.h"
#include "parallel/rank/training_rank.h"

namespace lockstep {

// The counts of a rank in a step; the other figures come from a simulation.
struct CountedRank {
  RankRecord record;
  double seconds = 0;          // the whole step
  double compute_seconds = 0;  // spent in kernels
  ExposedSeconds exposed;      // spent waiting
  std::vector<double> passes;  // by place in its schedule
};

// Adds the seconds of the steps to `seconds`, without the first one, which also allocates. Sets `own`
// to the time that each rank spent on its own work.
std::vector<CountedRank> train_ranks(const Plan& plan, const LaunchOptions& world,
                                     std::vector<double>& seconds, SlowRanks& own);
// Simulates a step in virtual time, on all ranks. `trace`, if given, becomes the file of their traces.
std::vector<CountedRank> simulate_ranks(const Plan& plan, const Roofline& roofline,
                                        const std::string& link, std::string* trace = nullptr);
// Simulates a step on ranks that stand in for all (parallel/plan/symmetry.h), which takes less time.
std::vector<CountedRank> simulate_kinds_of_ranks(const Plan& plan, const Roofline& roofline,
                                                 const std::string& link);
double slowest(const std::vector<CountedRank>& ranks);

}  // namespace lockstep
