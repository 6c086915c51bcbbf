// Makes a plan from options, and checks it.
#pragma once

#include "parallel/plan.h"

namespace lockstep {

// As plan_of() without a model, but of this one: no preset and no file need have it. Not checked.
Plan plan_of(const TrainOptions& options, int ranks, const GptConfig& model);

}  // namespace lockstep
