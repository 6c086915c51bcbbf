// Ring all-gather: each finished chunk travels once around the ring.
//
//   rounds p - 1        bytes sent per rank  n (p - 1) / p        scratch none
#include "collectives/all_gather/all_gather.h"

namespace lockstep {

void ring_all_gather(Communicator& comm, Slice data) {
  const int p = comm.size(), rank = comm.rank();
  const Chunks chunk(data, p);

  for (int step = 0; step < p - 1; ++step)
    comm.send_recv(chunk[rank - step], comm.right(), chunk[rank - 1 - step], comm.left());
}

}  // namespace lockstep
