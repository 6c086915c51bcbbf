// All-gather: every rank ends with all ranks' chunks. Lists its algorithms.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/ring_order.h"

namespace lockstep {

// Rank i provides Chunks(data, p)[i]. Afterwards every rank holds all of data. Throws like
// reduce_scatter.
void all_gather(Communicator& comm, Slice data, std::string_view algorithm = "ring");

using AllGatherAlgorithm = Algorithm<>;
const std::vector<AllGatherAlgorithm>& all_gather_algorithms();

AllGatherAlgorithm all_gather_ring();
AllGatherAlgorithm all_gather_recursive_doubling();
AllGatherAlgorithm all_gather_bruck();
AllGatherAlgorithm all_gather_linear();

// The same among the ranks of a ring. Rank i of the ring provides chunk i.
void ring_all_gather(Communicator& comm, Slice data, const RingOrder& ring);
Traffic ring_all_gather_traffic(Count count, int ranks, int rank);

// The same among ranks 0 .. p - 1, where p is a power of two, with p chunks. This rank is one of
// them.
void recursive_doubling(Communicator& comm, const Chunks& chunk, int p);
Traffic recursive_doubling_traffic(Count count, int p, int rank);

}  // namespace lockstep
