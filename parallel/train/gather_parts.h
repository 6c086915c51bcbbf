// Gathers what the ranks of a plan hold of the model on rank 0.
#pragma once

#include "parallel/plan/plan.h"
#include "parallel/rank/strategy.h"

namespace lockstep {

// Of each part of a set, the rank with its first copy sends it to rank 0, which gives the parts to
// `sink` in the order of ranks. `own` has this rank's values, or gradients, of the whole set. All
// ranks that compute call it together.
void gather_parts(RankContext& context, const Plan& plan, ParameterSet set, Slice own,
                  const PartSink& sink);

}  // namespace lockstep
