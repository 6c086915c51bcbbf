// Bruck's all-gather: in round k a rank sends everything it has to the rank 2^k behind and receives
// from the rank 2^k ahead. It stores chunks in order of arrival, its own first, and rotates them
// into place at the end.
//
//   rounds ceil(lg p)   bytes sent per rank  n (p - 1) / p        scratch n
//
// Few rounds for any number of ranks; the final rotation costs a copy. Bruck et al., "Efficient
// algorithms for all-to-all communications in multiport message-passing systems", 1997.
#include "collectives/all_gather/all_gather.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice data) {
  const int p = comm.size(), rank = comm.rank();
  if (p == 1) return;
  const Chunks chunk(data, p);
  const Memory memory = comm.scratch(data, data.count);
  const Slice turned = memory.slice(data.count, data.dtype);  // chunks rank, rank + 1, ...
  const Parts part(data.count, p);
  comm.copy(turned.first(chunk[rank].count), chunk[rank]);
  for (int have = 1; have < p; have *= 2) {
    const int behind = (rank - have + p) % p, ahead = (rank + have) % p;
    const int exchanged = std::min(have, p - have);
    const Slice arriving =
        turned.part(part.around(rank, have), part.around(rank + have, exchanged));
    comm.send_recv(turned.first(part.around(rank, exchanged)), behind, arriving, ahead);
  }
  const Count to_the_end = part.range(rank, p - rank);
  comm.copy(data.part(data.count - to_the_end, to_the_end), turned.first(to_the_end));
  comm.copy(data.first(data.count - to_the_end), turned.part(to_the_end, data.count - to_the_end));
}

Traffic traffic(const Problem& x, int rank) {
  const Parts part(x.count, x.ranks);
  Traffic total;
  for (int have = 1; have < x.ranks; have *= 2) {
    const int exchanged = std::min(have, x.ranks - have);
    total += {1, part.around(rank, exchanged), 1, part.around(rank + have, exchanged)};
  }
  return total;
}

}  // namespace

AllGatherAlgorithm all_gather_bruck() {
  return {.name = "bruck",
          .run = run,
          .traffic = traffic,
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                return ceil_log2(x.ranks) * links.between.alpha_s +
                       (x.ranks - 1) * x.chunk_bytes(x.ranks) * links.between.beta_s_per_byte;
              },
          .formula = "ceil(lg p) a + n (p-1)/p b",
          .exact = equal_chunks,
          .scratch = [](const Problem& x, int) { return x.ranks > 1 ? x.count : 0; },
          .ranks_are_equal = true};
}

}  // namespace lockstep
