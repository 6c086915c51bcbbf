// The result file of `lockstep train --json`, schema lockstep.train/1.
#pragma once

#include <string>

#include "collectives/transport/launch.h"
#include "parallel/plan.h"
#include "parallel/result.h"

namespace lockstep {

// The whole file as text. It records every effective option, so that the run can be repeated.
std::string train_json(const Plan& plan, const LaunchOptions& world, const TrainResult& result);

// The file of a dry run, schema lockstep.dry-run/1: the plan, one rank's counts and closed forms.
// `absent` lists what the file of a training run has in addition.
std::string dry_run_json(const Plan& plan, const LaunchOptions& world, const TrainResult& result);

}  // namespace lockstep
