// Shared by tests of collectives: the elements that ranks contribute, and their combination.
#pragma once

#include <algorithm>

#include "collectives/base/dtype.h"

namespace lockstep::test {

// Numbers from 0 to `spread`. The usual ones are small enough that products and 16-bit sums stay
// exact for every world size here.
inline double element(int rank, Count index, ReduceOp op, int spread = 13) {
  if (op == ReduceOp::prod) return (rank + index) % 5 == 0 ? 2 : 1;
  return static_cast<double>((rank * 7 + index * 3) % spread + (rank == 0 ? 1 : 0));
}

// The result over all ranks; an average is not divided yet.
inline double combined(int ranks, Count index, ReduceOp op, int spread = 13) {
  double result = element(0, index, op, spread);
  for (int rank = 1; rank < ranks; ++rank) {
    const double value = element(rank, index, op, spread);
    if (op == ReduceOp::sum || op == ReduceOp::avg) result += value;
    if (op == ReduceOp::prod) result *= value;
    if (op == ReduceOp::min) result = std::min(result, value);
    if (op == ReduceOp::max) result = std::max(result, value);
  }
  return result;
}

}  // namespace lockstep::test
