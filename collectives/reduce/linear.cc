// Linear reduce: every rank sends its data to the root, which combines them one by one.
//
//   rounds               1 (p - 1 messages come to the root)
//   bytes sent per rank  n, the root 0
//   scratch              none with shared memory
#include "collectives/reduce/reduce.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice data, ReduceOp op, int root) {
  if (comm.rank() != root) {
    comm.send(data, root);
    return;
  }
  for (int from = 0; from < comm.size(); ++from)
    if (from != root) comm.recv_reduce(data, from, op);
}

}  // namespace

ReduceAlgorithm reduce_linear() {
  return {.name = "linear",
          .run = run,
          .traffic =
              [](const Problem& x, int rank) {
                const Count others = x.ranks - 1;
                return rank == x.root ? Traffic{0, 0, others, others * x.count}
                                      : Traffic{1, x.count, 0, 0};
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
