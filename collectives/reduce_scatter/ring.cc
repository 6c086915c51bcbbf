// Ring reduce-scatter: each chunk travels once around the ring; every rank adds its data.
//
//   rounds p - 1        bytes sent per rank  n (p - 1) / p        scratch none with shared memory
//
//   chunk sent, p = 4   step  rank 0  rank 1  rank 2  rank 3
//                          0       3       0       1       2
//                          1       2       3       0       1
//                          2       1       2       3       0
#include "collectives/reduce_scatter/reduce_scatter.h"
#include "collectives/rounds.h"

namespace lockstep {

// lab: ring_reduce_scatter
void ring_reduce_scatter(Communicator& comm, Slice data, ReduceOp op, const RingOrder& ring) {
  const int p = ring.size, rank = ring.rank;
  const Chunks chunk(data, p);

  // lab: solution
  for (int step = 0; step < p - 1; ++step) {
    const Slice leaving = chunk[rank - 1 - step];  // already the sum over step + 1 ranks
    const Slice growing = chunk[rank - 2 - step];
    comm.send_recv_reduce(leaving, ring.right(), growing, ring.left(), op);
  }
  // lab: given
}
// lab: end

// A rank keeps its own chunk, and never receives the chunk of its left neighbour.
Traffic ring_reduce_scatter_traffic(Count count, int p, int rank) {
  const Parts chunk(count, p);
  return {.sent_messages = p - 1,
          .sent_elements = count - chunk[rank],
          .received_messages = p - 1,
          .received_elements = count - chunk[rank - 1]};
}

namespace {

void run(Communicator& comm, Slice data, ReduceOp op) {
  ring_reduce_scatter(comm, data, op, whole_ring(comm));
  comm.complete(Chunks(data, comm.size())[comm.rank()], op);
}

}  // namespace

ReduceScatterAlgorithm reduce_scatter_ring() {
  return {.name = "ring",
          .run = run,
          .traffic = [](const Problem& x,
                        int rank) { return ring_reduce_scatter_traffic(x.count, x.ranks, rank); },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                return ring_seconds(x.ranks, x.ranks_per_node, x.ranks - 1, x.chunk_bytes(x.ranks),
                                    links);
              },
          .formula = "(p-1) (a + n/p b)",
          .exact_on_nodes = equal_chunks_of_nodes,
          .ranks_are_equal = true};
}

}  // namespace lockstep
