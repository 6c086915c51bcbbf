// All-gather: every rank ends with all ranks' chunks. The menu of its algorithms.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/circle.h"

namespace lockstep {

// Rank i provides Chunks(data, p)[i]; afterwards every rank holds all of data. Throws as
// reduce_scatter does.
void all_gather(Communicator& comm, Slice data, std::string_view algorithm = "ring");

using AllGatherAlgorithm = Algorithm<>;
const std::vector<AllGatherAlgorithm>& all_gather_algorithms();

AllGatherAlgorithm all_gather_ring();
AllGatherAlgorithm all_gather_recursive_doubling();
AllGatherAlgorithm all_gather_bruck();
AllGatherAlgorithm all_gather_linear();

// The same among the ranks of a circle; rank i of it provides chunk i.
void ring_all_gather(Communicator& comm, Slice data, const Circle& circle);
Traffic ring_all_gather_traffic(Count count, int ranks, int rank);

// The same among the ranks 0 .. p - 1, a power of two, of which this is one, for p chunks.
void recursive_doubling(Communicator& comm, const Chunks& chunk, int p);
Traffic recursive_doubling_traffic(Count count, int p, int rank);

}  // namespace lockstep
