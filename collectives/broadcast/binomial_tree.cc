// Binomial broadcast: in each round every rank that has the data sends them to another one, so the
// number of ranks that have them doubles.
//
//   rounds ceil(lg p)   bytes sent by the root  n ceil(lg p)      scratch none
#include "collectives/binomial_tree.h"
#include "collectives/broadcast/broadcast.h"

namespace lockstep {

void binomial_broadcast(Communicator& comm, Slice data, int root) {
  const BinomialTree tree(comm.rank(), comm.size(), root);
  if (!tree.is_root()) comm.recv(data, tree.parent());

  std::vector<Request> sends;  // the largest subtree first
  for (int distance = tree.reach() / 2; distance > 0; distance /= 2)
    if (tree.has_child(distance)) sends.push_back(comm.isend(data, tree.child(distance)));
  for (const Request& send : sends) send->wait();
}

Traffic binomial_broadcast_traffic(const Problem& x, int rank) {
  const BinomialTree tree(rank, x.ranks, x.root);
  const Count received = tree.is_root() ? 0 : 1;
  return {tree.children(), tree.children() * x.count, received, received * x.count};
}

BroadcastAlgorithm broadcast_binomial_tree() {
  return {.name = "binomial_tree",
          .run = binomial_broadcast,
          .traffic = binomial_broadcast_traffic,
          .seconds = binomial_tree_seconds,
          .formula = "ceil(lg p) (a + n b)",
          .exact = power_of_two,
          .exact_on_nodes = binomial_tree_fits_nodes};
}

}  // namespace lockstep
