// Binomial reduce: the binomial broadcast run backwards. In each round half of the remaining ranks
// send their data to the other half, which combine them.
//
//   rounds ceil(lg p)   bytes sent per rank  n, the root 0        scratch none with shared memory
#include "collectives/binomial_tree.h"
#include "collectives/reduce/reduce.h"

namespace lockstep {

void binomial_reduce(Communicator& comm, Slice data, ReduceOp op, int root) {
  const BinomialTree tree(comm.rank(), comm.size(), root);
  for (int distance = 1; distance < tree.reach(); distance *= 2)
    if (tree.has_child(distance)) comm.recv_reduce(data, tree.child(distance), op);
  if (!tree.is_root()) comm.send(data, tree.parent());
}

Traffic binomial_reduce_traffic(const Problem& x, int rank) {
  const BinomialTree tree(rank, x.ranks, x.root);
  const Count sent = tree.is_root() ? 0 : 1;
  return {sent, sent * x.count, tree.children(), tree.children() * x.count};
}

ReduceAlgorithm reduce_binomial_tree() {
  return {.name = "binomial_tree",
          .run = binomial_reduce,
          .traffic = binomial_reduce_traffic,
          .seconds = binomial_tree_seconds,
          .formula = "ceil(lg p) (a + n b)",
          .exact = power_of_two,
          .exact_on_nodes = binomial_tree_fits_nodes};
}

}  // namespace lockstep
