// Dissemination barrier: in round k every rank tells the rank 2^k ahead and hears from the one 2^k
// behind; after ceil(lg p) rounds news of every rank has reached every rank.
//
//   rounds ceil(lg p)   bytes sent per rank  0 in ceil(lg p) messages   scratch none
//
// Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988.
#include "collectives/barrier/barrier.h"

namespace lockstep {

void dissemination_barrier(Communicator& comm) {
  const int p = comm.size(), rank = comm.rank();
  const Slice nothing{.dtype = DType::u8, .device = &host_device()};
  for (int distance = 1; distance < p; distance *= 2)
    comm.send_recv(nothing, (rank + distance) % p, nothing, (rank - distance + p) % p);
}

}  // namespace lockstep
