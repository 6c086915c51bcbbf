// Ring all-reduce: reduce-scatter, then all-gather. Fewest bytes possible, but 2 (p - 1) latencies.
//
//   rounds 2 (p - 1)    bytes sent per rank  2 n (p - 1) / p      scratch none where ranks share
//   memory
//
// Choose it for large data on links of one speed. Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", JPDC 2009.
#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {

void ring_all_reduce(Communicator& comm, Slice data, ReduceOp op) {
  ring_reduce_scatter(comm, data, op);
  ring_all_gather(comm, data);
}

// Exact for unequal chunks c_i: rank i keeps c_i in the first half and c_(i+1) in the second.
Traffic ring_all_reduce_sent(int rank, int ranks, Count count) {
  const Chunks chunk({.count = count, .dtype = DType::u8}, ranks);
  return {.messages = 2 * (ranks - 1),
          .elements = 2 * count - chunk[rank].count - chunk[rank + 1].count};
}

}  // namespace lockstep
