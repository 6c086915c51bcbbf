// The exchanges of a step on all ranks of a plan, without its passes: of ddp all gradients; of fsdp also
// the gathers of parameters.
#pragma once

#include <vector>

#include "collectives/base/counters.h"
#include "collectives/transport/launch/launch.h"
#include "parallel/plan/plan.h"

namespace lockstep {

// The seconds of a rank for each of its steps, and what it sends in one.
struct ExchangingRank {
  std::vector<double> seconds;
  Volume sent;
};
// Throws Error (wrong_result) if what a rank sends differs from its closed form.
std::vector<ExchangingRank> exchange_all(const Plan& plan, LaunchOptions world, int times);

}  // namespace lockstep
