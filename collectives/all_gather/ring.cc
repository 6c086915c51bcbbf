// Ring all-gather: each finished chunk travels once around the ring.
//
//   rounds p - 1        bytes sent per rank  n (p - 1) / p        scratch none
#include "collectives/all_gather/all_gather.h"
#include "collectives/rounds.h"

namespace lockstep {

// lab: ring_all_gather
void ring_all_gather(Communicator& comm, Slice data, const RingOrder& ring) {
  const int p = ring.size, rank = ring.rank;
  const Chunks chunk(data, p);

  // lab: solution
  for (int step = 0; step < p - 1; ++step)
    comm.send_recv(chunk[rank - step], ring.right(), chunk[rank - 1 - step], ring.left());
  // lab: given
}
// lab: end

// A rank does not send the chunk that its right neighbour provides.
Traffic ring_all_gather_traffic(Count count, int p, int rank) {
  const Parts chunk(count, p);
  return {.sent_messages = p - 1,
          .sent_elements = count - chunk[rank + 1],
          .received_messages = p - 1,
          .received_elements = count - chunk[rank]};
}

AllGatherAlgorithm all_gather_ring() {
  return {
      .name = "ring",
      .run = [](Communicator& comm, Slice data) { ring_all_gather(comm, data, whole_ring(comm)); },
      .traffic = [](const Problem& x,
                    int rank) { return ring_all_gather_traffic(x.count, x.ranks, rank); },
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
