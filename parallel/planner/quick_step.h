// A step in closed form, for 1F1B, interleaved or not, with the layers as equal as can be: fast enough
// to rank every plan that there is. The best are then replayed.
//
//   seconds   m max_r (F_r + B_r + sends) + (p - 1) / v (F + B + 2 hops) + exchange + update
//   in flight micro-batches of rank r: min(p - r, m); chunks: min(2 (p - 1 - r) + (v - 1) p + 1, m v)
#pragma once

#include "parallel/planner/replica_time.h"

namespace lockstep {

struct QuickStep {
  double seconds = 0;
  double largest_memory = 0;  // bytes of the first rank, the second or the last
};

// `layers_per_stage` is not looked at.
QuickStep quick_step(const StepInputs& step);

}  // namespace lockstep
