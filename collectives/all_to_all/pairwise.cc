// Pairwise exchange: in round i every rank sends to the rank i ahead and receives from the rank i
// behind.
//
//   rounds p - 1        bytes sent per rank  n (p - 1) / p        scratch none
//
// Every byte travels once, and no rank receives two messages at a time.
#include "collectives/all_to_all/all_to_all.h"

namespace lockstep {
namespace {

// lab: pairwise
void pairwise_all_to_all(Communicator& comm, Slice out, Slice in) {
  const int p = comm.size(), rank = comm.rank();
  const Chunks leaving(in, p), arriving(out, p);
  // lab: solution
  comm.copy(arriving[rank], leaving[rank]);
  for (int distance = 1; distance < p; ++distance) {
    const int to = (rank + distance) % p, from = (rank - distance + p) % p;
    comm.send_recv(leaving[to], to, arriving[from], from);
  }
  // lab: given
}
// lab: end

}  // namespace

AllToAllAlgorithm all_to_all_pairwise() {
  return {.name = "pairwise",
          .run = pairwise_all_to_all,
          .traffic =
              [](const Problem& x, int) {
                const Count messages = x.ranks - 1, elements = messages * (x.count / x.ranks);
                return Traffic{messages, elements, messages, elements};
              },
          .seconds =
              [](const Problem& x, const LinkModel& links) {
                return (x.ranks - 1) * links.between.seconds(x.chunk_bytes(x.ranks));
              },
          .formula = "(p-1) (a + n/p b)",
          .ranks_are_equal = true};
}

}  // namespace lockstep
