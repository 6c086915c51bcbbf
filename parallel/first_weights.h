// Initializes a rank's parameters, and hands out the final ones.
#pragma once

#include "models/parameters.h"
#include "parallel/plan.h"
#include "parallel/training_rank.h"

namespace lockstep {

// Reads the parameters from the plan's file, or draws them from its seed. Each rank takes its own
// part, and sends nothing. Throws Error (bad_input) if the file does not fit.
void take_first_weights(const Plan& plan, Parameters& parameters);

// Calls sink(part, flat) with a copy of `flat` in the host's memory.
void give(const Parameters& part, Slice flat, const PartSink& sink);
// The flat buffer of a rank's own values or gradients.
inline Slice flat_of(const Parameters& part, Gathered what) {
  return what == Gathered::values ? part.values() : part.gradients();
}
inline void give_part(const Parameters& part, Gathered what, const PartSink& sink) {
  give(part, flat_of(part, what), sink);
}

}  // namespace lockstep
