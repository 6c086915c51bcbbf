// Pairwise exchange: in round i every rank sends to the rank i ahead and receives from the rank i
// behind.
//
//   rounds p - 1        bytes sent per rank  its row of the matrix, without its own    scratch none
//
// No rank receives two messages at a time, as long as counts do not differ much: a rank with little
// to send runs ahead, and its messages queue with those of earlier rounds.
#include "collectives/all_to_all_v/all_to_all_v.h"

namespace lockstep {
namespace {

void run(Communicator& comm, Slice out, Slice in, RankCounts counts) {
  const int p = comm.size(), rank = comm.rank();
  const UnevenChunks leaving(in, counts.in), arriving(out, counts.out);
  comm.copy(arriving[rank], leaving[rank]);
  for (int distance = 1; distance < p; ++distance) {
    const int to = (rank + distance) % p, from = (rank - distance + p) % p;
    comm.send_recv(leaving[to], to, arriving[from], from);
  }
}

// The time if every round ended before the next one begins.
double seconds(const Problem& x, const LinkModel& links) {
  double total = 0;
  for (int distance = 1; distance < x.ranks; ++distance) {
    Count largest = 0;
    for (int rank = 0; rank < x.ranks; ++rank)
      largest = std::max(largest, pair_count(x, rank, (rank + distance) % x.ranks));
    total += links.between.seconds(static_cast<double>(largest * x.element_bytes));
  }
  return total;
}

}  // namespace

AllToAllVAlgorithm all_to_all_v_pairwise() {
  return {.name = "pairwise",
          .run = run,
          .traffic = all_to_all_v_traffic,
          .seconds = seconds,
          .formula = "(p-1) a + sum over rounds of the largest message b",
          .exact = stays_in_step,
          .ranks_are_equal = true};
}

}  // namespace lockstep
