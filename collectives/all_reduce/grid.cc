#include "collectives/all_reduce/grid.h"

#include <algorithm>

#include "collectives/all_gather/all_gather.h"
#include "collectives/reduce_scatter/reduce_scatter.h"
#include "collectives/rounds.h"

namespace lockstep {

void grid_all_reduce(Communicator& comm, Slice data, ReduceOp op, const Grid& grid) {
  const RingOrder row = grid.row(comm.rank()), column = grid.column(comm.rank());
  ring_reduce_scatter(comm, data, op, row);
  const Slice own = Chunks(data, row.size)[row.rank];
  ring_reduce_scatter(comm, own, op, column);
  comm.complete(Chunks(own, column.size)[column.rank], op);
  ring_all_gather(comm, own, column);
  ring_all_gather(comm, data, row);
}

Traffic grid_all_reduce_traffic(Count count, const Grid& grid, int rank) {
  const RingOrder row = grid.row(rank), column = grid.column(rank);
  const Count own = Parts(count, row.size)[row.rank];
  return ring_reduce_scatter_traffic(count, row.size, row.rank) +
         ring_all_gather_traffic(count, row.size, row.rank) +
         ring_reduce_scatter_traffic(own, column.size, column.rank) +
         ring_all_gather_traffic(own, column.size, column.rank);
}

bool grid_fits_nodes(const Problem& x, const Grid& grid) {
  return grid.columns % x.ranks_per_node == 0 || x.ranks_per_node % grid.columns == 0;
}

// All rows take the same time, and so do all columns: rounds along one dimension continue where
// they stopped when the rounds along the other have passed.
double grid_all_reduce_seconds(const Problem& x, const Grid& grid, const LinkModel& links) {
  const Count own = Parts(x.count, grid.columns).largest();
  const Count part = Parts(own, grid.rows).largest();
  const bool fits = grid_fits_nodes(x, grid);
  const int in_row = fits ? std::min(grid.columns, x.ranks_per_node) : 1;
  const int in_column = fits ? std::max(1, x.ranks_per_node / grid.columns) : 1;
  return ring_seconds(grid.columns, in_row, 2 * (grid.columns - 1),
                      static_cast<double>(own * x.element_bytes), links) +
         ring_seconds(grid.rows, in_column, 2 * (grid.rows - 1),
                      static_cast<double>(part * x.element_bytes), links);
}

}  // namespace lockstep
