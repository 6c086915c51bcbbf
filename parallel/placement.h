// How a parameter lies on the mesh, axis by axis. From it follow which gradients are summed over
// which group, what a norm counts, and what files take from whom.
#pragma once

#include <string_view>
#include <vector>

#include "parallel/plan.h"
#include "parallel/rank_model.h"

namespace lockstep {

enum class Placed : std::uint8_t {
  sharded,     // every rank along the axis has elements of its own
  replicated,  // all have the same elements, and the same gradient
  partial,     // the same elements, and each a part of the gradient's sum
};
std::string_view name_of(Placed placed);

// Columns of a parameter that lie in one way.
struct Placement {
  std::string name;                            // of the parameter
  Region region;                               // in the whole one, on the rank that was asked about
  std::vector<std::pair<Axis, Placed>> along;  // the axes longer than 1, in the mesh's order
  int sharers = 1;  // of the tensor-parallel ranks that have the same elements
};

// Of every parameter that a rank of the plan holds.
std::vector<Placement> placements_of(const Plan& plan, int rank);

}  // namespace lockstep
