// Dissemination barrier: in round k every rank notifies the rank 2^k ahead and is notified by the
// rank 2^k behind. After ceil(lg p) rounds every rank has learned that all have arrived.
//
//   rounds ceil(lg p)   bytes sent per rank  0 in ceil(lg p) messages   scratch none
//
// Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988.
#include "collectives/barrier/barrier.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice nothing) {
  const int p = comm.size(), rank = comm.rank();
  for (int distance = 1; distance < p; distance *= 2)
    comm.send_recv(nothing, (rank + distance) % p, nothing, (rank - distance + p) % p);
}

}  // namespace

BarrierAlgorithm barrier_dissemination() {
  return {
      .name = "dissemination",
      .run = run,
      .traffic =
          [](const Problem& x, int) {
            const Count rounds = ceil_log2(x.ranks);
            return Traffic{rounds, 0, rounds, 0};
          },
      .seconds = [](const Problem& x,
                    const LinkModel& links) { return ceil_log2(x.ranks) * links.between.alpha_s; },
      .formula = "ceil(lg p) a",
      .ranks_are_equal = true};
}

}  // namespace lockstep
