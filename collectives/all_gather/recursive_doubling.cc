// Recursive doubling: in round k a rank exchanges everything it has with the rank at distance 2^k,
// so its data double.
//
//   rounds lg p         bytes sent per rank  n (p - 1) / p        scratch none
//
// Few rounds, but requires a power of two of ranks. Bruck's algorithm takes any number.
#include "collectives/all_gather/all_gather.h"
#include "collectives/rounds.h"

namespace lockstep {

void recursive_doubling(Communicator& comm, const Chunks& chunk, int p) {
  for (int have = 1; have < p; have *= 2) {
    const int peer = comm.rank() ^ have;
    comm.send_recv(chunk.range(comm.rank() / have * have, have), peer,
                   chunk.range(peer / have * have, have), peer);
  }
}

Traffic recursive_doubling_traffic(Count count, int p, int rank) {
  const Parts chunk(count, p);
  Traffic total;
  for (int have = 1; have < p; have *= 2)
    total += {1, chunk.range(rank / have * have, have), 1,
              chunk.range((rank ^ have) / have * have, have)};
  return total;
}

AllGatherAlgorithm all_gather_recursive_doubling() {
  return {
      .name = "recursive_doubling",
      .run = [](Communicator& comm,
                Slice data) { recursive_doubling(comm, Chunks(data, comm.size()), comm.size()); },
      .traffic = [](const Problem& x,
                    int rank) { return recursive_doubling_traffic(x.count, x.ranks, rank); },
      .seconds =
          [](const Problem& x, const LinkModel& links) {
            return doubling_seconds(x.ranks, x.ranks_per_node, x.chunk_bytes(x.ranks), true, links);
          },
      .formula = "lg p a + n (p-1)/p b",
      .exact = equal_chunks,
      .exact_on_nodes = equal_chunks_of_power_of_two_of_nodes,
      .need = Need::power_of_two_ranks,
      .ranks_are_equal = true};
}

}  // namespace lockstep
