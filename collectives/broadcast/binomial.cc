// Binomial broadcast: in each round every rank that has the data passes it on, so their number
// doubles.
//
//   rounds ceil(lg p)   bytes sent by the root  n ceil(lg p)      scratch none
//
// Seen from the root, rank v receives from v without its lowest set bit and serves v plus each
// lower power of two.
#include <vector>

#include "collectives/broadcast/broadcast.h"

namespace lockstep {

void binomial_broadcast(Communicator& comm, Slice data, int root) {
  const int p = comm.size();
  const int from_root = (comm.rank() - root + p) % p;
  const auto rank_at = [&](int distance) { return (distance + root) % p; };

  int reach = 1;
  while (reach < p && (from_root & reach) == 0) reach *= 2;
  if (from_root != 0) comm.irecv(data, rank_at(from_root - reach))->wait();

  std::vector<Request> sends;
  for (int step = reach / 2; step > 0; step /= 2)
    if (from_root + step < p) sends.push_back(comm.isend(data, rank_at(from_root + step)));
  for (const Request& send : sends) send->wait();
}

}  // namespace lockstep
