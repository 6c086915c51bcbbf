// Each rank's gradients before any reduction: shows which gradients still need a sum.
#pragma once

#include <vector>

#include "parallel/plan/plan.h"

namespace lockstep {

// Returns for each rank the gradients of one step in the order of its parameters (see RankOutline):
// its own contribution to the mean over the whole global batch. Uses the plan's initial weights and
// its batch of step 0. Runs the ranks as threads. The plan's type is f64, and nothing is sharded.
std::vector<std::vector<double>> local_gradients(const Plan& plan);

}  // namespace lockstep
