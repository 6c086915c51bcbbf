// A step in closed form, with the layers as equal as can be: fast enough to rank every plan that there
// is. The best are then replayed.
//
//   seconds   m max_r (F_r + B_r + sends) + (p - 1) / v (F + B + 2 hops) + exchange + update, and by as
//             much more or less as the schedule's makespan differs from that of 1F1B, with all ranks'
//             passes equal
//   in flight as the schedule's closed form says (schedules.h); if the weights' gradients are passes of
//             their own, as on rank 0
#pragma once

#include "parallel/planner/replica_time.h"

namespace lockstep {

struct QuickStep {
  double seconds = 0;
  double largest_memory = 0;  // bytes of the first rank, the second or the last
};

// `layers_per_stage` is not looked at. The schedule must have a closed form of what is in flight.
QuickStep quick_step(const StepInputs& step);

}  // namespace lockstep
