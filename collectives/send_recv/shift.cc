// Shift: one message to the right neighbour and one from the left.
//
//   rounds 1            bytes sent per rank  n                    scratch none
#include "collectives/send_recv/send_recv.h"

namespace lockstep {

SendRecvAlgorithm send_recv_shift() {
  return {.name = "shift",
          .run = [](Communicator& comm, Slice out,
                    Slice in) { comm.send_recv(in, comm.right(), out, comm.left()); },
          .traffic =
              [](const Problem& x, int) {
                return Traffic{1, x.count, 1, x.count};
              },
          .seconds = [](const Problem& x,
                        const LinkModel& links) { return links.between.seconds(x.bytes()); },
          .formula = "a + n b",
          .exact_on_nodes = [](const Problem&) { return true; },
          .ranks_are_equal = true};
}

}  // namespace lockstep
