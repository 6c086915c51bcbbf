// What the division of experts states for a rank: the counts of each dispatch, once; its rows on their
// way to the experts and back, and their gradients, as its method states (dispatcher.h); those of
// forward once more if the layer is computed again. A rank has memory for P N min(K, E / P) rows, or
// for P times the capacity of its experts if that is less, whatever the routers choose; and t times as many
// if t ranks with different tokens split its experts (parts.h).
#pragma once

#include "parallel/plan/environment.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/terms.h"

namespace lockstep {

// For a rank whose stages have so many layers with experts. The environment's rows are those of all
// layers and micro-batches of a step; none: the tokens choose as the plan assumes.
Terms expert_terms(const Plan& plan, int rank, int layers, const Environment& environment);

}  // namespace lockstep
