// Binomial tree: reduce to rank 0, then broadcast from it, both along the same tree.
//
//   rounds 2 ceil(lg p)   bytes sent  rank 0 n ceil(lg p)      scratch none with shared memory
//                                     a leaf n
//
// Few rounds for any number of ranks, but each round moves all the data.
#include "collectives/binomial_tree.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/broadcast/broadcast.h"
#include "collectives/reduce/reduce.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice data, ReduceOp op) {
  constexpr int root = 0;
  binomial_reduce(comm, data, op, root);
  if (comm.rank() == root) comm.complete(data, op);
  binomial_broadcast(comm, data, root);
}

}  // namespace

AllReduceAlgorithm all_reduce_binomial_tree() {
  return {.name = "binomial_tree",
          .run = run,
          .traffic =
              [](const Problem& x, int rank) {
                Problem from_0 = x;
                from_0.root = 0;
                return binomial_reduce_traffic(from_0, rank) +
                       binomial_broadcast_traffic(from_0, rank);
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                Problem from_0 = x;
                from_0.root = 0;
                return 2 * binomial_tree_seconds(from_0, links);
              },
          .formula = "2 ceil(lg p) (a + n b)",
          .exact = power_of_two,
          .exact_on_nodes = power_of_two_of_nodes};
}

}  // namespace lockstep
