// How many tensors between stages a rank holds at once: arriving, leaving, or going from one of its
// stages to the next. No formula covers all schedules, so this is a replay of the rank's program. The
// memory of these tensors is reused, so the peak count determines the cost.
#pragma once

#include "parallel/plan/plan.h"

namespace lockstep {

struct MostMessages {
  int in_training = 0, in_validation = 0;
};
MostMessages most_messages(const Plan& plan, int rank);

}  // namespace lockstep
