// Linear broadcast: the root sends the data to every rank.
//
//   rounds 1 (p - 1 messages leave the root)   bytes sent by the root  n (p - 1)    scratch none
#include "collectives/broadcast/broadcast.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice data, int root) {
  if (comm.rank() != root) {
    comm.recv(data, root);
    return;
  }
  std::vector<Request> sends;
  for (int to = 0; to < comm.size(); ++to)
    if (to != root) sends.push_back(comm.isend(data, to));
  for (const Request& send : sends) send->wait();
}

}  // namespace

BroadcastAlgorithm broadcast_linear() {
  return {.name = "linear",
          .run = run,
          .traffic =
              [](const Problem& x, int rank) {
                const Count others = x.ranks - 1;
                return rank == x.root ? Traffic{others, others * x.count, 0, 0}
                                      : Traffic{0, 0, 1, x.count};
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                return (x.ranks > 1 ? links.between.alpha_s : 0) +
                       (x.ranks - 1) * x.bytes() * links.between.beta_s_per_byte;
              },
          .formula = "a + (p-1) n b",
          .is_baseline = true};
}

}  // namespace lockstep
