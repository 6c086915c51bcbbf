// Pairwise exchange: in round i every rank sends its unreduced data for the rank i ahead to that
// rank, and receives data for its own chunk from the rank i behind.
//
//   rounds p - 1        bytes sent per rank  n (p - 1) / p        scratch none with shared memory
//
// Costs as much as the ring. Every chunk is summed by one rank, and every pair of ranks needs a
// link.
#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice data, ReduceOp op) {
  const int p = comm.size(), rank = comm.rank();
  const Chunks chunk(data, p);
  for (int distance = 1; distance < p; ++distance) {
    const int to = (rank + distance) % p, from = (rank - distance + p) % p;
    comm.send_recv_reduce(chunk[to], to, chunk[rank], from, op);
  }
  comm.complete(chunk[rank], op);
}

}  // namespace

ReduceScatterAlgorithm reduce_scatter_pairwise() {
  return {.name = "pairwise",
          .run = run,
          .traffic =
              [](const Problem& x, int rank) {
                const Parts chunk(x.count, x.ranks);
                return Traffic{.sent_messages = x.ranks - 1,
                               .sent_elements = x.count - chunk[rank],
                               .received_messages = x.ranks - 1,
                               .received_elements = (x.ranks - 1) * chunk[rank]};
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                return (x.ranks - 1) * links.between.seconds(x.chunk_bytes(x.ranks));
              },
          .formula = "(p-1) (a + n/p b)",
          .exact = equal_chunks,
          .ranks_are_equal = true};
}

}  // namespace lockstep
