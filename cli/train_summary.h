// What `lockstep train` prints at the end of a run.
#pragma once

#include "collectives/transport/launch/launch.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/result.h"

namespace lockstep {

void print_summary(const Plan& plan, const LaunchOptions& launch, const TrainResult& result);

}  // namespace lockstep
