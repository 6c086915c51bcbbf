// Ring reduce-scatter: each chunk travels once around the ring and grows at every stop.
//
//   rounds p - 1        bytes sent per rank  n (p - 1) / p        scratch none where ranks share
//   memory
//
//   chunk sent, p = 4   step  rank 0  rank 1  rank 2  rank 3
//                          0       3       0       1       2
//                          1       2       3       0       1
//                          2       1       2       3       0
#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {

void ring_reduce_scatter(Communicator& comm, Slice data, ReduceOp op) {
  const int p = comm.size(), rank = comm.rank();
  const Chunks chunk(data, p);

  for (int step = 0; step < p - 1; ++step) {
    const Slice leaving = chunk[rank - 1 - step];  // already the sum over step + 1 ranks
    const Slice growing = chunk[rank - 2 - step];
    comm.send_recv_reduce(leaving, comm.right(), growing, comm.left(), op);
  }
  comm.complete(chunk[rank], op);
}

}  // namespace lockstep
