// How the parameters of a rank lie on a plan's mesh: printed, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "parallel/plan/plan.h"

namespace lockstep {

void print_placements(const Plan& plan, int rank);
// A list of {"name": parameter, "placement": {axis: sharded, replicated or partial}}.
nlohmann::ordered_json placements_json(const Plan& plan, int rank);

}  // namespace lockstep
