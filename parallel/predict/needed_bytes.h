// The memory that a machine needs for a plan.
#pragma once

#include "parallel/plan/plan.h"

namespace lockstep {

// What the ranks of a process hold at the same time, as predicted, in bytes: of all ranks of
// the plan, or of the largest one. A parameter server's worker is counted as a replica, with the
// servers' states.
double needed_bytes(const Plan& plan, bool has_all_ranks);

}  // namespace lockstep
