// The result file of `lockstep train --json`, schema lockstep.train/1.
#pragma once

#include <string>

#include "collectives/transport/launch.h"
#include "parallel/plan.h"
#include "parallel/result.h"

namespace lockstep {

// The whole file as text. It records every effective option, so that the run can be repeated.
std::string train_json(const Plan& plan, const LaunchOptions& world, const TrainResult& result);

}  // namespace lockstep
