// The closed forms of context parallelism for one rank: see ring.h, gather.h and ulysses.h.
#pragma once

#include "parallel/plan/plan.h"
#include "parallel/plan/terms.h"

namespace lockstep {

// The traffic and the pairs of an optimizer step, for a rank with that many layers, `backward` of them
// with a backward pass, and the memory in
// which ranks exchange blocks and heads of the largest micro-batch. Nothing if sequences are whole.
Terms context_terms(const Plan& plan, int rank, int layers, int backward);

}  // namespace lockstep
