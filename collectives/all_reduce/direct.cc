// Direct all-reduce, for ranks that share an address space: each combines its chunk straight out of
// all ranks' memory and writes the result straight into it.
//
//   rounds 2 meetings   bytes sent per rank  0: it reads n, and writes n     scratch none
//
// One pass over memory, and no message. Only rank i touches chunk i, so nobody waits in between. Of
// small data every rank shows a copy, and combines all of them itself: one meeting.
#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

void run_small(Communicator& comm, Slice data, ReduceOp op) {
  const auto shown = comm.meet_with_copy(data);
  comm.copy(data, shown[0]);
  for (const Slice& other : shown.subspan(1)) comm.reduce(data, other, op);
  comm.complete(data, op);
}

void run(Communicator& comm, Slice data, ReduceOp op) {
  if (data.bytes() <= SharedMemory::copied_bytes) return run_small(comm, data, op);
  std::vector<Slice> chunk;
  for (const Slice& whole : comm.meet(data))
    chunk.push_back(Chunks(whole, comm.size())[comm.rank()]);
  data.device->reduce_all(chunk, op, op == ReduceOp::avg ? comm.size() : 1);
  comm.meet(data);
}

}  // namespace

AllReduceAlgorithm all_reduce_direct() {
  return {.name = "direct",
          .run = run,
          .traffic = [](const Problem&, int) { return Traffic{}; },
          .formula = "one pass over memory",
          .need = Need::shared_memory};
}

}  // namespace lockstep
