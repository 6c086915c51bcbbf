// Linear scatter: the root sends every rank its chunk.
//
//   rounds 1 (p - 1 messages leave the root)   bytes sent by the root  n (p - 1) / p   scratch none
#include "collectives/scatter/scatter.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice data, int root) {
  const int p = comm.size(), rank = comm.rank();
  const Chunks chunk(data, p);
  if (rank != root) {
    comm.recv(chunk[rank], root);
    return;
  }
  std::vector<Request> sends;
  for (int to = 0; to < p; ++to)
    if (to != root) sends.push_back(comm.isend(chunk[to], to));
  for (const Request& send : sends) send->wait();
}

}  // namespace

ScatterAlgorithm scatter_linear() {
  return {.name = "linear",
          .run = run,
          .traffic =
              [](const Problem& x, int rank) {
                const Count own = Parts(x.count, x.ranks)[rank];
                return rank == x.root ? Traffic{x.ranks - 1, x.count - own, 0, 0}
                                      : Traffic{0, 0, 1, own};
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
