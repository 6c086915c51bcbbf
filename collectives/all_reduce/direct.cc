// Direct all-reduce, for ranks that share memory: each rank combines its chunk directly from all
// ranks' memory, in the order of the ranks, and writes the result directly to all of them.
//
//   rounds 2 rendezvous   bytes sent per rank  0: it reads n, and writes n   scratch none
//
// Each byte is read and written once, without messages. Processes copy data that lie outside their
// shared heap into it, and the result back. Only rank i touches chunk i, so ranks wait
// only before the first chunk and after the last. For small data every rank shows a copy, and each
// rank combines all of them: one rendezvous.
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

void run_out_of_place(Communicator& comm, Slice out, Slice in, ReduceOp op) {
  const Count divisor = op == ReduceOp::avg ? comm.size() : 1;
  if (in.bytes() <= SharedMemory::copied_bytes) {
    const auto shown = comm.rendezvous_with_copy(in);
    return out.device->reduce_all(std::span(&out, 1), shown, op, divisor);
  }
  const auto shown = comm.rendezvous(in, out);
  out.device->reduce_all(chunks_of(shown.into, comm.rank()), chunks_of(shown.from, comm.rank()), op,
                         divisor);
  comm.withdraw(in, out);
}

void run(Communicator& comm, Slice data, ReduceOp op) { run_out_of_place(comm, data, data, op); }

}  // namespace

AllReduceAlgorithm all_reduce_direct() {
  return {.name = "direct",
          .run = run,
          .run_out_of_place = run_out_of_place,
          .traffic = [](const Problem&, int) { return Traffic{}; },
          .formula = "one pass over memory",
          .need = Need::shared_memory};
}

}  // namespace lockstep
