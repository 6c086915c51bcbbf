// How a rank's parameters lie on the mesh, as a list to print.
#pragma once

#include <string>
#include <vector>

#include "models/parameters.h"
#include "parallel/plan/plan.h"

namespace lockstep {

// Columns of a parameter with the same placement.
struct PlacedColumns {
  std::string parameter;
  Region region;  // in the whole parameter
  Placement placement;
  ParameterSet set;  // experts: other ranks along ep have others
};

// Those of every parameter that a rank of the plan holds.
std::vector<PlacedColumns> placements_of(const Plan& plan, int rank);

}  // namespace lockstep
