// Linear gather: every rank sends its chunk directly to the root.
//
//   rounds               1 (p - 1 messages come to the root)
//   bytes sent per rank  n / p, the root 0
//   scratch              none
#include "collectives/gather/gather.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice data, int root) {
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

}  // namespace

GatherAlgorithm gather_linear() {
  return {.name = "linear",
          .run = run,
          .traffic =
              [](const Problem& x, int rank) {
                const Count own = Parts(x.count, x.ranks)[rank];
                return rank == x.root ? Traffic{0, 0, x.ranks - 1, x.count - own}
                                      : Traffic{1, own, 0, 0};
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                return (x.ranks > 1 ? links.between.alpha_s : 0) +
                       (x.ranks - 1) * x.chunk_bytes(x.ranks) * links.between.beta_s_per_byte;
              },
          .formula = "a + n (p-1)/p b",
          .exact = equal_chunks};
}

}  // namespace lockstep
