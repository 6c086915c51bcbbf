// Bruck's all-to-all: a chunk for the rank d ahead travels by the powers of two in d. In round k
// every rank sends all chunks whose distance has bit k, in one message, to the rank 2^k ahead.
//
//   rounds ceil(lg p)   bytes sent per rank  about n/2 lg p       scratch 2 n
//
// Fewest messages: for small chunks. Bruck et al., "Efficient algorithms for all-to-all
// communications in multiport message-passing systems", 1997.
#include "collectives/all_to_all/all_to_all.h"

namespace lockstep {
namespace {

// How many of the distances 0 .. p - 1 have `bit`.
int with_bit(int bit, int p) {
  int number = 0;
  for (int distance = bit; distance < p; ++distance) number += (distance & bit) != 0;
  return number;
}

void run(Communicator& comm, Slice out, Slice in) {
  const int p = comm.size(), rank = comm.rank();
  const Chunks leaving(in, p), arriving(out, p);
  const Count chunk = in.count / p;
  const Memory memory = comm.scratch(in, in.count), packed = comm.scratch(in, in.count);
  // At index d: the chunk whose total distance is d. Its remaining bits decide where it goes next.
  const Chunks travelling(memory.slice(in.count, in.dtype), p);
  const Slice package = packed.slice(in.count, in.dtype);

  for (int distance = 0; distance < p; ++distance)
    comm.copy(travelling[distance], leaving[rank + distance]);
  for (int bit = 1; bit < p; bit *= 2) {
    const int chunks = with_bit(bit, p);
    // At most half of the chunks leave, so arriving chunks fit behind them.
    const Slice sent = package.first(chunks * chunk);
    const Slice received = package.part(chunks * chunk, chunks * chunk);
    int place = 0;
    for (int distance = bit; distance < p; ++distance)
      if ((distance & bit) != 0) comm.copy(sent.part(place++ * chunk, chunk), travelling[distance]);
    comm.send_recv(sent, (rank + bit) % p, received, (rank - bit + p) % p);
    place = 0;
    for (int distance = bit; distance < p; ++distance)
      if ((distance & bit) != 0)
        comm.copy(travelling[distance], received.part(place++ * chunk, chunk));
  }
  for (int distance = 0; distance < p; ++distance)
    comm.copy(arriving[rank - distance], travelling[distance]);
}

}  // namespace

AllToAllAlgorithm all_to_all_bruck() {
  return {.name = "bruck",
          .run = run,
          .traffic =
              [](const Problem& x, int) {
                Traffic total;
                for (int bit = 1; bit < x.ranks; bit *= 2) {
                  const Count elements = with_bit(bit, x.ranks) * (x.count / x.ranks);
                  total += {1, elements, 1, elements};
                }
                return total;
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                double seconds = 0;
                for (int bit = 1; bit < x.ranks; bit *= 2)
                  seconds += links.between.seconds(with_bit(bit, x.ranks) * x.chunk_bytes(x.ranks));
                return seconds;
              },
          .formula = "lg p (a + n/2 b)",
          .ranks_are_equal = true};
}

}  // namespace lockstep
