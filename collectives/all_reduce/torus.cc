// 2-D torus: ranks form a grid that is as square as possible. Rings run along the rows, then along
// the columns.
//
//   a rows of b ranks   rounds 2 (b - 1) + 2 (a - 1)     bytes sent per rank  2 n (p - 1) / p
//
// The ring's bytes in about 4 sqrt(p) rounds. A prime number of ranks gives one row: a ring.
#include <cmath>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/all_reduce/grid.h"

namespace lockstep {
namespace {

Grid squarest(int ranks) {
  int rows = static_cast<int>(std::sqrt(ranks));
  while (ranks % rows != 0) --rows;
  return {.rows = rows, .columns = ranks / rows};
}

}  // namespace

AllReduceAlgorithm all_reduce_torus() {
  return {
      .name = "torus",
      .run = [](Communicator& comm, Slice data,
                ReduceOp op) { grid_all_reduce(comm, data, op, squarest(comm.size())); },
      .traffic = [](const Problem& x,
                    int rank) { return grid_all_reduce_traffic(x.count, squarest(x.ranks), rank); },
      .seconds =
          [](const Problem& x, const LinkModel& links) {
            return grid_all_reduce_seconds(x, squarest(x.ranks), links);
          },
      .formula = "2(b-1) (a + n/b b) + 2(a-1) (a + n/p b)",
      .exact = equal_chunks,
      .exact_on_nodes =
          [](const Problem& x) {
            return equal_chunks_of_nodes(x) && grid_fits_nodes(x, squarest(x.ranks));
          },
      .ranks_are_equal = true};
}

}  // namespace lockstep
