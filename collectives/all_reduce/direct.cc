// Direct all-reduce, for ranks that share an address space: each combines its chunk straight out of
// all ranks' memory and writes the result straight into it.
//
//   rounds 2 meetings   bytes sent per rank  0: it reads n, and writes n     scratch none
//
// One pass over memory, and no message. Only rank i touches chunk i, so nobody waits in between:
// the ranks meet before, and when all chunks are done. Of small data every rank shows a copy, and
// combines all of them itself: one meeting.
#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

// Chunk `rank` of each slice.
std::vector<Slice> chunks_of(std::span<const Slice> slices, int rank) {
  std::vector<Slice> chunks;
  for (const Slice& whole : slices)
    chunks.push_back(Chunks(whole, static_cast<int>(slices.size()))[rank]);
  return chunks;
}

void run_apart(Communicator& comm, Slice out, Slice in, ReduceOp op) {
  const Count divisor = op == ReduceOp::avg ? comm.size() : 1;
  if (in.bytes() <= SharedMemory::copied_bytes) {
    const auto shown = comm.meet_with_copy(in);
    return out.device->reduce_all(std::span(&out, 1), shown, op, divisor);
  }
  const auto shown = comm.meet(in, out);
  out.device->reduce_all(chunks_of(shown.into, comm.rank()), chunks_of(shown.from, comm.rank()), op,
                         divisor);
  comm.meet(in, out);
}

void run(Communicator& comm, Slice data, ReduceOp op) { run_apart(comm, data, data, op); }

}  // namespace

AllReduceAlgorithm all_reduce_direct() {
  return {.name = "direct",
          .run = run,
          .run_apart = run_apart,
          .traffic = [](const Problem&, int) { return Traffic{}; },
          .formula = "one pass over memory",
          .need = Need::shared_memory};
}

}  // namespace lockstep
