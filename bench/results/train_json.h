// The result file of `lockstep train --json`, schema lockstep.train/1.
#pragma once

#include <string>

#include "bench/results/slow_ranks.h"
#include "collectives/transport/launch/launch.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/result.h"

namespace lockstep {

// The ranks whose own time in a step is much longer than that of the ranks with the same work.
SlowRanks slow_ranks(const Plan& plan, const LaunchOptions& world, const TrainResult& result);

// The whole file as text. It records every effective option, so that the run can be repeated.
std::string train_json(const Plan& plan, const LaunchOptions& world, const TrainResult& result);

// A dry run's result, schema lockstep.dry-run/1: the plan, and what its rank counted next to the
// closed forms. `absent` lists what a training run's result has in addition.
std::string dry_run_json(const Plan& plan, const LaunchOptions& world, const TrainResult& result);

}  // namespace lockstep
