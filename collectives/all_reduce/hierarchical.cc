// Two-level all-reduce: reduce-scatter inside each node, all-reduce of each rank's chunk between
// nodes, all-gather inside each node.
//
//   nodes                               g, of k ranks each
//   rounds                              2 (k - 1) + 2 (g - 1)
//   bytes sent per rank, between nodes  2 (n / k) (g - 1) / g
//
// For nodes whose internal links are much faster than the links between them.
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/all_reduce/grid.h"

namespace lockstep {
namespace {

// A row is a node.
Grid nodes(int ranks, int ranks_per_node) {
  return {.rows = ranks / ranks_per_node, .columns = ranks_per_node};
}

}  // namespace

AllReduceAlgorithm all_reduce_hierarchical() {
  return {.name = "hierarchical",
          .run =
              [](Communicator& comm, Slice data, ReduceOp op) {
                grid_all_reduce(comm, data, op, nodes(comm.size(), comm.ranks_per_node()));
              },
          .traffic =
              [](const Problem& x, int rank) {
                return grid_all_reduce_traffic(x.count, nodes(x.ranks, x.ranks_per_node), rank);
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                return grid_all_reduce_seconds(x, nodes(x.ranks, x.ranks_per_node), links);
              },
          .formula = "2(k-1) (a1 + n/k b1) + 2(g-1) (a2 + n/(k g) b2)",
          .exact = equal_chunks,
          .exact_on_nodes = equal_chunks,
          .need = Need::full_nodes,
          .ranks_are_equal = true};
}

}  // namespace lockstep
