// Linear all-reduce: every rank sends its data to rank 0, which combines them one by one and sends
// the result to every rank.
//
//   rounds 2            bytes sent  rank 0 n (p - 1)           scratch none with shared memory
//                                   the others n
//
// The naive algorithm. All bytes go through one rank, so its time grows with p. A baseline for the
// others.
#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice data, ReduceOp op) {
  constexpr int root = 0;
  if (comm.rank() != root) {
    comm.send(data, root);
    comm.recv(data, root);
    return;
  }
  for (int from = 1; from < comm.size(); ++from) comm.recv_reduce(data, from, op);
  comm.complete(data, op);
  std::vector<Request> sent;
  for (int to = 1; to < comm.size(); ++to) sent.push_back(comm.isend(data, to));
  for (const Request& send : sent) send->wait();
}

}  // namespace

AllReduceAlgorithm all_reduce_linear() {
  return {.name = "linear",
          .run = run,
          .traffic =
              [](const Problem& x, int rank) {
                const Count times = rank == 0 ? x.ranks - 1 : 1;
                if (x.ranks == 1) return Traffic{};
                return Traffic{times, times * x.count, times, times * x.count};
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                if (x.ranks == 1) return 0.0;
                return 2 * (links.between.alpha_s +
                            (x.ranks - 1) * x.bytes() * links.between.beta_s_per_byte);
              },
          .formula = "2 (a + (p-1) n b)",
          .is_baseline = true};
}

}  // namespace lockstep
