// All-to-all with a count for every pair of ranks: for tokens that go to experts, or heads and
// documents that ranks cannot share evenly. Lists its algorithms.
//
// A rank knows only what it sends and receives, not the whole matrix of counts. So no algorithm
// forwards data through other ranks, as Bruck's does: they would have to know how much passes
// through them. A pair with nothing to send still exchanges an empty message: it shows its receiver
// that both agree, so that it does not wait for a rank that has continued.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

// `in` holds counts.in[i] elements for rank i, one after the other; `out` gets counts.out[i] from
// rank i, which must equal that rank's counts.in[rank]. Both have the same type and must not
// overlap. Throws like all_reduce; if the counts of a pair differ, the error names both ranks and
// both counts.
void all_to_all_v(Communicator& comm, Slice out, Slice in, RankCounts counts,
                  std::string_view algorithm = "pairwise");

using AllToAllVAlgorithm = Algorithm<Slice, RankCounts>;
const std::vector<AllToAllVAlgorithm>& all_to_all_v_algorithms();

AllToAllVAlgorithm all_to_all_v_pairwise();
AllToAllVAlgorithm all_to_all_v_linear();

// The parts of a slice with given counts, one after the other.
class UnevenChunks {
 public:
  UnevenChunks(Slice whole, std::span<const Count> counts);
  Slice operator[](int i) const;

 private:
  Slice whole_;
  std::vector<Count> begin_;  // of each part, and the end of the last
};

// The elements from one rank to another. Without a matrix all pairs have the same count.
Count pair_count(const Problem& x, int from, int to);
// The same for every algorithm: one message to each other rank, with that rank's elements.
Traffic all_to_all_v_traffic(const Problem& x, int rank);
// Whether times are exact: between two ranks; or if, for each i, all ranks send the same amount to
// the rank i ahead. Otherwise ranks fall out of step, and messages queue behind those of later
// rounds.
bool stays_in_step(const Problem& x);

// The rank that sends to others, or receives from them, the most elements.
struct Busiest {
  int rank = 0;
  Count elements = 0;
  bool receives = false;  // more than it sends
};
Busiest busiest(const Problem& x);

}  // namespace lockstep
