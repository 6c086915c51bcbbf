// Recursive halving: in each round a rank keeps half of its current range. It sends the other half
// to the rank at that distance, and receives that rank's data for its own half.
//
//   rounds lg p         bytes sent per rank  n (p - 1) / p        scratch none with shared memory
//
// Few rounds and few bytes, but requires a power of two of ranks. Thakur, Rabenseifner and Gropp,
// "Optimization of collective communication operations in MPICH", 2005.
#include "collectives/reduce_scatter/reduce_scatter.h"
#include "collectives/rounds.h"

namespace lockstep {

void recursive_halving(Communicator& comm, const Chunks& chunk, int p, ReduceOp op) {
  int first = 0;  // chunk of this rank's current range
  for (int half = p / 2; half > 0; half /= 2) {
    const int peer = comm.rank() ^ half;
    const int lower = first, upper = first + half;
    first = (comm.rank() & half) == 0 ? lower : upper;
    const Slice kept = chunk.range(first, half);
    const Slice given = chunk.range(first == lower ? upper : lower, half);
    comm.send_recv_reduce(given, peer, kept, peer, op);
  }
}

Traffic recursive_halving_traffic(Count count, int p, int rank) {
  const Parts chunk(count, p);
  Traffic total;
  for (int half = p / 2; half > 0; half /= 2) {
    const int kept = rank / half * half, given = (rank ^ half) / half * half;
    total += {1, chunk.range(given, half), 1, chunk.range(kept, half)};
  }
  return total;
}

namespace {

void run(Communicator& comm, Slice data, ReduceOp op) {
  recursive_halving(comm, Chunks(data, comm.size()), comm.size(), op);
  comm.complete(Chunks(data, comm.size())[comm.rank()], op);
}

}  // namespace

ReduceScatterAlgorithm reduce_scatter_recursive_halving() {
  return {.name = "recursive_halving",
          .run = run,
          .traffic = [](const Problem& x,
                        int rank) { return recursive_halving_traffic(x.count, x.ranks, rank); },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                return doubling_seconds(x.ranks, x.ranks_per_node, x.chunk_bytes(x.ranks), true,
                                        links);
              },
          .formula = "lg p a + n (p-1)/p b",
          .exact = equal_chunks,
          .exact_on_nodes = equal_chunks_of_power_of_two_of_nodes,
          .need = Need::power_of_two_ranks,
          .ranks_are_equal = true};
}

}  // namespace lockstep
