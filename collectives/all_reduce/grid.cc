#include "collectives/all_reduce/grid.h"

#include "collectives/all_gather/all_gather.h"
#include "collectives/reduce_scatter/reduce_scatter.h"

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

double grid_all_reduce_seconds(const Problem& x, const Grid& grid, const Link& row,
                               const Link& column) {
  const Count own = Parts(x.count, grid.columns).largest();
  const Count part = Parts(own, grid.rows).largest();
  return 2 * (grid.columns - 1) * row.seconds(static_cast<double>(own * x.element_bytes)) +
         2 * (grid.rows - 1) * column.seconds(static_cast<double>(part * x.element_bytes));
}

}  // namespace lockstep
