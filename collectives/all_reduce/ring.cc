// Ring all-reduce: reduce-scatter, then all-gather. The fewest bytes, but 2 (p - 1) latencies.
//
//   rounds 2 (p - 1)    bytes sent per rank  2 n (p - 1) / p      scratch none with shared memory
//
// Choose it for large data on links of one speed. Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", JPDC 2009.
#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/reduce_scatter/reduce_scatter.h"
#include "collectives/rounds.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice data, ReduceOp op) {
  const RingOrder ring = whole_ring(comm);
  ring_reduce_scatter(comm, data, op, ring);
  comm.complete(Chunks(data, ring.size)[ring.rank], op);
  ring_all_gather(comm, data, ring);
}

}  // namespace

AllReduceAlgorithm all_reduce_ring() {
  return {.name = "ring",
          .run = run,
          .traffic =
              [](const Problem& x, int rank) {
                return ring_reduce_scatter_traffic(x.count, x.ranks, rank) +
                       ring_all_gather_traffic(x.count, x.ranks, rank);
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                return ring_seconds(x.ranks, x.ranks_per_node, 2 * (x.ranks - 1),
                                    x.chunk_bytes(x.ranks), links);
              },
          .formula = "2(p-1) (a + n/p b)",
          .exact_on_nodes = equal_chunks_of_nodes,
          .ranks_are_equal = true};
}

}  // namespace lockstep
