// Pairwise exchange: in every round each rank sends to one other rank and receives from another, as far
// behind as that is ahead.
//
//   rounds p - 1        bytes sent per rank  its row of the matrix, without its own    scratch none
//
// On equal nodes, ranks are so many nodes and so many places ahead, so that all links of a round are of
// one kind: first those inside nodes. No rank receives two messages at a time, as long as counts do not
// differ much: a rank with little to send runs ahead, and its messages queue with those of earlier
// rounds.
#include "collectives/all_to_all_v/all_to_all_v.h"
#include "collectives/ring_order.h"

namespace lockstep {
namespace {

// A row is a node; all ranks are one if nodes differ.
Grid equal_nodes(int ranks, int ranks_per_node) {
  const bool equal = ranks_per_node > 0 && ranks % ranks_per_node == 0;
  return {.rows = equal ? ranks / ranks_per_node : 1, .columns = equal ? ranks_per_node : ranks};
}

// The rank that is 0 < round < p nodes and places ahead of this one, or behind it.
int ahead(const Grid& nodes, int rank, int round) {
  const int node = nodes.column(rank).rank + round / nodes.columns,
            place = nodes.row(rank).rank + round % nodes.columns;
  return node % nodes.rows * nodes.columns + place % nodes.columns;
}
int behind(const Grid& nodes, int rank, int round) {
  const int node = nodes.column(rank).rank + nodes.rows - round / nodes.columns,
            place = nodes.row(rank).rank + nodes.columns - round % nodes.columns;
  return node % nodes.rows * nodes.columns + place % nodes.columns;
}

void run(Communicator& comm, Slice out, Slice in, RankCounts counts) {
  const int p = comm.size(), rank = comm.rank();
  const Grid nodes = equal_nodes(p, comm.ranks_per_node());
  const UnevenChunks leaving(in, counts.in), arriving(out, counts.out);
  comm.copy(arriving[rank], leaving[rank]);
  for (int round = 1; round < p; ++round) {
    const int to = ahead(nodes, rank, round), from = behind(nodes, rank, round);
    comm.send_recv(leaving[to], to, arriving[from], from);
  }
}

// The time if every round ended before the next one begins.
double seconds(const Problem& x, const LinkModel& links) {
  const Grid nodes = equal_nodes(x.ranks, x.ranks_per_node);
  double total = 0;
  for (int round = 1; round < x.ranks; ++round) {
    Count largest = 0;
    for (int rank = 0; rank < x.ranks; ++rank)
      largest = std::max(largest, pair_count(x, rank, ahead(nodes, rank, round)));
    const Link& link = round < nodes.columns ? links.inside : links.between;
    total += link.seconds(static_cast<double>(largest * x.element_bytes));
  }
  return total;
}

// Whether all ranks send the same amount in each round, as stays_in_step() says.
bool rounds_are_equal(const Problem& x) {
  if (x.ranks == 2) return true;
  const Grid nodes = equal_nodes(x.ranks, x.ranks_per_node);
  for (int round = 1; round < x.ranks; ++round)
    for (int rank = 1; rank < x.ranks; ++rank)
      if (pair_count(x, rank, ahead(nodes, rank, round)) !=
          pair_count(x, 0, ahead(nodes, 0, round)))
        return false;
  return true;
}

}  // namespace

AllToAllVAlgorithm all_to_all_v_pairwise() {
  return {.name = "pairwise",
          .run = run,
          .traffic = all_to_all_v_traffic,
          .seconds = seconds,
          .formula = "(p-1) a + sum over rounds of the largest message b",
          .exact = rounds_are_equal,
          .exact_on_nodes = rounds_are_equal,
          .ranks_are_equal = true};
}

}  // namespace lockstep
