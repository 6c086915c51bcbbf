// The algorithms by which replicas exchange gradients and parameters, as --algorithm names them: one
// name, or several joined by '+': each collective takes the first that it has.
#pragma once

#include <string>
#include <string_view>

#include "collectives/operations/operations.h"
#include "parallel/plan/plan.h"

namespace lockstep {

// Returns the name for all_reduce, reduce_scatter or all_gather. "auto" chooses an algorithm for each
// exchange.
std::string algorithm_of(const Plan& plan, Operation collective);

// Throws Error (bad_input) if a name is unknown, if a collective of the plan has none of the names,
// or if its algorithm cannot run on so many ranks.
void check_algorithms(const Plan& plan);

// Returns the algorithm with its closed forms; null for "auto", which has none.
const AnyAlgorithm* closed_forms(Operation collective, std::string_view name);

}  // namespace lockstep
