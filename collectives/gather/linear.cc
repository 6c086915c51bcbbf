// Linear gather: every rank sends its chunk straight to the root.
//
//   rounds 1 (the root receives p - 1 messages)   bytes sent per rank  n / p, the root 0   scratch
//   none
#include <vector>

#include "collectives/gather/gather.h"

namespace lockstep {

void linear_gather(Communicator& comm, Slice data, int root) {
  const int p = comm.size(), rank = comm.rank();
  const Chunks chunk(data, p);
  if (rank != root) {
    comm.send(chunk[rank], root);
    return;
  }
  std::vector<Request> arriving;
  for (int from = 0; from < p; ++from)
    if (from != root) arriving.push_back(comm.irecv(chunk[from], from));
  for (const Request& request : arriving) request->wait();
}

}  // namespace lockstep
