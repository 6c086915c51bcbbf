// How a parameter lies on the mesh, axis by axis. This determines which gradients are summed over
// which group, what a norm counts, and which rank writes what to a file.
#pragma once

#include <string_view>
#include <vector>

#include "parallel/plan/plan.h"
#include "parallel/rank/rank_model.h"

namespace lockstep {

enum class Placed : std::uint8_t {
  sharded,     // every rank along the axis has its own elements
  replicated,  // all have the same elements and the same gradient
  partial,     // the same elements; each has a part of the gradient's sum
};
std::string_view name_of(Placed placed);

// Columns of a parameter with the same placement.
struct Placement {
  std::string name;                            // of the parameter
  Region region;                               // in the whole parameter, on the given rank
  std::vector<std::pair<Axis, Placed>> along;  // the axes longer than 1, in the mesh's order
  int sharers = 1;                             // tensor-parallel ranks with the same elements
};

// The placement of every parameter that a rank of the plan holds.
std::vector<Placement> placements_of(const Plan& plan, int rank);

}  // namespace lockstep
