// Runs the compute of one rank of a plan without storage and without the other ranks: the same
// layers, on the device `none`. It finds what no closed form gives.
#pragma once

#include "parallel/plan.h"

namespace lockstep {

// Peak bytes of the widened copies that 16-bit data needs on the host: for each operand of a kernel,
// the largest one of a step, in f32. 0 for other types. It counts every token of the first stage's
// embedding as a different one.
Count narrow_workspace_bytes(const Plan& plan, int rank);

}  // namespace lockstep
