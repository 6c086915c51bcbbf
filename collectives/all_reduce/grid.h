// All-reduce on a grid of ranks: reduce-scatter along the rows, all-reduce of each chunk along the
// columns, all-gather along the rows.
#pragma once

#include "collectives/algorithm.h"
#include "collectives/ring_order.h"

namespace lockstep {

void grid_all_reduce(Communicator& comm, Slice data, ReduceOp op, const Grid& grid);
Traffic grid_all_reduce_traffic(Count count, const Grid& grid, int rank);
double grid_all_reduce_seconds(const Problem& problem, const Grid& grid, const LinkModel& links);
// Whether that time is exact: rows are whole nodes, or nodes whole rows.
bool grid_fits_nodes(const Problem& problem, const Grid& grid);

}  // namespace lockstep
