// The points of a benchmark: every size, type, reduction and root.
#pragma once

#include <vector>

#include "bench/collectives/collective.h"

namespace lockstep {

struct PointSpec {
  DType dtype;
  ReduceOp op;
  bool is_scaled;  // each rank multiplies its input first
  Problem problem;
};

// In the order of the table, for operations among `ranks` ranks of `comm`.
std::vector<PointSpec> points_of(Communicator& comm, int ranks, const BenchOptions& options);

}  // namespace lockstep
