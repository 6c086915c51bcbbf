// The closed forms of context parallelism for one rank: see ring.h, gather.h and ulysses.h.
#pragma once

#include "parallel/plan/plan.h"
#include "parallel/plan/prediction.h"

namespace lockstep {

// Adds the traffic and the pairs of an optimizer step, for a rank with that many layers.
void predict_context(Prediction& prediction, const Plan& plan, int rank, int layers);
// Returns the memory in which ranks exchange blocks and heads, for the largest micro-batch.
Count context_memory_bytes(const Plan& plan, int rank);

}  // namespace lockstep
