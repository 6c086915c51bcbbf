// A plan that the planner found, as one that Lockstep trains.
#pragma once

#include <string>

#include "parallel/plan/plan.h"
#include "parallel/planner/arrangement.h"

namespace lockstep {

// The plan of `train --plan` for this arrangement of a GPT-2, in bf16. Throws Error (bad_input) if the
// model is another, or if no technique of Lockstep trains it so.
Plan found_plan(const Arrangement& arrangement, const std::string& model);

}  // namespace lockstep
