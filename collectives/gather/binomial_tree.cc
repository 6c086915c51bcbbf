// Binomial gather: each rank collects the chunks of its subtree and sends them on together.
//
//   rounds ceil(lg p)   bytes to the root  n (p - 1) / p          scratch the subtree's chunks
//
// Fewer messages at the root than with the linear algorithm, but chunks travel several times.
#include "collectives/binomial_tree.h"
#include "collectives/gather/gather.h"

namespace lockstep {

void binomial_gather(Communicator& comm, Slice data, int root) {
  const int p = comm.size(), rank = comm.rank();
  const BinomialTree tree(rank, p, root);
  const Parts part(data.count, p);
  const Chunks chunk(data, p);

  // Chunks rank, rank + 1, ... of the subtree, one after the other.
  const Count collected = part.around(rank, tree.subtree());
  const Memory memory = comm.scratch(data, collected);
  const Slice subtree = memory.slice(collected, data.dtype);
  comm.copy(subtree.first(part[rank]), chunk[rank]);
  for (int distance = 1; distance < tree.reach(); distance *= 2)
    if (tree.has_child(distance))
      comm.recv(subtree.part(part.around(rank, distance),
                             part.around(rank + distance, tree.subtree_of_child(distance))),
                tree.child(distance));
  if (!tree.is_root()) {
    comm.send(subtree, tree.parent());
    return;
  }
  const Count to_the_end = part.range(root, p - root);
  comm.copy(data.part(data.count - to_the_end, to_the_end), subtree.first(to_the_end));
  comm.copy(data.first(data.count - to_the_end), subtree.part(to_the_end, data.count - to_the_end));
}

Traffic binomial_gather_traffic(const Problem& x, int rank) {
  const BinomialTree tree(rank, x.ranks, x.root);
  const Count collected = Parts(x.count, x.ranks).around(rank, tree.subtree());
  return {.sent_messages = tree.is_root() ? 0 : 1,
          .sent_elements = tree.is_root() ? 0 : collected,
          .received_messages = tree.children(),
          .received_elements = collected - Parts(x.count, x.ranks)[rank]};
}

GatherAlgorithm gather_binomial_tree() {
  return {.name = "binomial_tree",
          .run = binomial_gather,
          .traffic = binomial_gather_traffic,
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                return ceil_log2(x.ranks) * links.between.alpha_s +
                       (x.ranks - 1) * x.chunk_bytes(x.ranks) * links.between.beta_s_per_byte;
              },
          .formula = "ceil(lg p) a + n (p-1)/p b",
          .exact = equal_chunks_of_power_of_two};
}

}  // namespace lockstep
