// Direct barrier, for ranks that share memory: each rank shows that it has come, and waits until all
// others have.
//
//   rounds 1 rendezvous   bytes sent per rank  0   scratch none
//
// The ranks need no messages, and the last one wakes all that sleep. After a message, a rank that
// sleeps would find it only after its nap, when others have long gone on.
#include "collectives/barrier/barrier.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice nothing) { comm.rendezvous_with_copy(nothing); }

}  // namespace

BarrierAlgorithm barrier_direct() {
  return {.name = "direct",
          .run = run,
          .traffic = [](const Problem&, int) { return Traffic{}; },
          .formula = "one rendezvous",
          .need = Need::shared_memory};
}

}  // namespace lockstep
