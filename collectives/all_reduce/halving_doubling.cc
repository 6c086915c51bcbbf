// Halving-doubling: reduce-scatter by recursive halving, then all-gather by recursive doubling.
//
//   rounds               2 lg p (+ 2)
//   bytes sent per rank  2 n (p - 1) / p (+ n)
//   scratch              none with shared memory
//
// The ring's bytes in few rounds if p is a power of two. Otherwise the other ranks fold (fold.h),
// which moves all the data twice more. Rabenseifner, "Optimization of collective
// reduction operations", 2004.
#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/all_reduce/fold.h"
#include "collectives/reduce_scatter/reduce_scatter.h"
#include "collectives/rounds.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice data, ReduceOp op) {
  const int q = participants(comm.size());
  fold_in(comm, data, op);
  if (comm.rank() < q) {
    const Chunks chunk(data, q);
    recursive_halving(comm, chunk, q, op);
    comm.complete(chunk[comm.rank()], op);
    recursive_doubling(comm, chunk, q);
  }
  fold_out(comm, data);
}

}  // namespace

AllReduceAlgorithm all_reduce_halving_doubling() {
  return {.name = "halving_doubling",
          .run = run,
          .traffic =
              [](const Problem& x, int rank) {
                const int q = participants(x.ranks);
                if (rank >= q) return folded_traffic(x, rank, {});
                return folded_traffic(x, rank,
                                      recursive_halving_traffic(x.count, q, rank) +
                                          recursive_doubling_traffic(x.count, q, rank));
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                const int q = participants(x.ranks);
                return 2 * doubling_seconds(q, x.ranks_per_node, x.chunk_bytes(q), true, links) +
                       fold_seconds(x, links);
              },
          .formula = "2 lg p a + 2 n (p-1)/p b, + 2 a + 3 n b unless p is a power of two",
          .exact = equal_chunks_of_power_of_two,
          .exact_on_nodes = equal_chunks_of_power_of_two_of_nodes,
          .ranks_are_equal = true};
}

}  // namespace lockstep
