// Binomial scatter: the binomial gather run backwards. Each rank receives the chunks of its subtree
// and sends those of its children on.
//
//   rounds ceil(lg p)   bytes sent by the root  n (p - 1) / p     scratch the subtree's chunks
#include "collectives/binomial_tree.h"
#include "collectives/scatter/scatter.h"

namespace lockstep {

void binomial_scatter(Communicator& comm, Slice data, int root) {
  const int p = comm.size(), rank = comm.rank();
  const BinomialTree tree(rank, p, root);
  const Parts part(data.count, p);
  const Chunks chunk(data, p);

  // Chunks rank, rank + 1, ... of the subtree, one after the other.
  const Count owed = part.around(rank, tree.subtree());
  const Memory memory = comm.scratch(data, owed);
  const Slice subtree = memory.slice(owed, data.dtype);
  if (tree.is_root()) {
    const Count to_the_end = part.range(root, p - root);
    comm.copy(subtree.first(to_the_end), data.part(data.count - to_the_end, to_the_end));
    comm.copy(subtree.part(to_the_end, data.count - to_the_end),
              data.first(data.count - to_the_end));
  } else {
    comm.recv(subtree, tree.parent());
    comm.copy(chunk[rank], subtree.first(part[rank]));
  }
  std::vector<Request> sends;  // the largest subtree first
  for (int distance = tree.reach() / 2; distance > 0; distance /= 2)
    if (tree.has_child(distance))
      sends.push_back(
          comm.isend(subtree.part(part.around(rank, distance),
                                  part.around(rank + distance, tree.subtree_of_child(distance))),
                     tree.child(distance)));
  for (const Request& send : sends) send->wait();
}

Traffic binomial_scatter_traffic(const Problem& x, int rank) {
  const BinomialTree tree(rank, x.ranks, x.root);
  const Count owed = Parts(x.count, x.ranks).around(rank, tree.subtree());
  return {.sent_messages = tree.children(),
          .sent_elements = owed - Parts(x.count, x.ranks)[rank],
          .received_messages = tree.is_root() ? 0 : 1,
          .received_elements = tree.is_root() ? 0 : owed};
}

ScatterAlgorithm scatter_binomial_tree() {
  return {.name = "binomial_tree",
          .run = binomial_scatter,
          .traffic = binomial_scatter_traffic,
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                return ceil_log2(x.ranks) * links.between.alpha_s +
                       (x.ranks - 1) * x.chunk_bytes(x.ranks) * links.between.beta_s_per_byte;
              },
          .formula = "ceil(lg p) a + n (p-1)/p b",
          .exact = equal_chunks_of_power_of_two};
}

}  // namespace lockstep
