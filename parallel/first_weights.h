// A rank's parameters get their first values, and give their last ones.
#pragma once

#include "models/parameters.h"
#include "parallel/plan.h"
#include "parallel/training_rank.h"

namespace lockstep {

// From the plan's file, or drawn from its seed: each rank takes its own part, and sends nothing.
// Throws Error (bad_input) for a file that does not fit.
void take_first_weights(const Plan& plan, Parameters& parameters);

// Calls sink(part, flat) with a copy of `flat` in the host's memory, wherever it is.
void give(const Parameters& part, Slice flat, const PartSink& sink);
// The same of a rank's own parameters.
inline Slice flat_of(const Parameters& part, Gathered what) {
  return what == Gathered::values ? part.values() : part.gradients();
}
inline void give_part(const Parameters& part, Gathered what, const PartSink& sink) {
  give(part, flat_of(part, what), sink);
}

}  // namespace lockstep
