// Recursive doubling: in round k every rank exchanges all its data with the rank at distance 2^k,
// and both combine them. The number of ranks that a sum covers doubles.
//
//   rounds lg p (+ 2)   bytes sent per rank  n lg p (+ n)         scratch n
//
// The fewest rounds, for small data. Ranks above a power of two fold (fold.h).
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/all_reduce/fold.h"
#include "collectives/rounds.h"

namespace lockstep {
namespace {

// lab: recursive_doubling
void recursive_doubling_all_reduce(Communicator& comm, Slice data, ReduceOp op) {
  const int q = participants(comm.size());
  fold_in(comm, data, op);
  if (comm.rank() < q) {
    const Memory memory = comm.scratch(data, data.count);
    const Slice arrived = memory.slice(data.count, data.dtype);
    // lab: solution
    for (int distance = 1; distance < q; distance *= 2) {
      const int peer = comm.rank() ^ distance;
      comm.send_recv(data, peer, arrived, peer);
      comm.reduce(data, arrived, op);
    }
    // lab: given
    comm.complete(data, op);
  }
  fold_out(comm, data);
}
// lab: end

}  // namespace

AllReduceAlgorithm all_reduce_recursive_doubling() {
  return {
      .name = "recursive_doubling",
      .run = recursive_doubling_all_reduce,
      .traffic =
          [](const Problem& x, int rank) {
            const Count rounds = floor_log2(x.ranks);
            return folded_traffic(x, rank, {rounds, rounds * x.count, rounds, rounds * x.count});
          },
      .seconds =
          [](const Problem& x, const LinkModel& links) {
            return doubling_seconds(participants(x.ranks), x.ranks_per_node, x.bytes(), false,
                                    links) +
                   fold_seconds(x, links);
          },
      .formula = "lg p (a + n b), + 2 a + 3 n b unless p is a power of two",
      .exact = power_of_two,
      .exact_on_nodes = power_of_two_of_nodes,
      .scratch = [](const Problem& x,
                    int rank) { return x.ranks > 1 && rank < participants(x.ranks) ? x.count : 0; },
      .ranks_are_equal = true};
}

}  // namespace lockstep
