// Binomial reduce: the binomial broadcast run backwards; the data of half of the ranks that are
// left is combined into the other half in each round.
//
//   rounds ceil(lg p)   bytes sent per rank  n, the root 0        scratch n
#include "collectives/reduce/reduce.h"

namespace lockstep {

void binomial_reduce(Communicator& comm, Slice data, ReduceOp op, int root) {
  const int p = comm.size();
  const int from_root = (comm.rank() - root + p) % p;
  const auto rank_at = [&](int distance) { return (distance + root) % p; };
  const Memory memory = comm.scratch(data, data.count);
  const Slice arrived = memory.slice(data.count, data.dtype);

  for (int step = 1; step < p; step *= 2) {
    if ((from_root & step) != 0) {
      comm.send(data, rank_at(from_root - step));
      return;
    }
    if (from_root + step < p) {
      comm.recv(arrived, rank_at(from_root + step));
      comm.reduce(data, arrived, op);
    }
  }
  comm.complete(data, op);
}

}  // namespace lockstep
