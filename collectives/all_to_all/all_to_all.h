// All-to-all: every rank has a chunk for every other rank, like the transpose of a matrix of
// chunks. Lists its algorithms.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

// Chunk i of out = chunk `rank` of `in` on rank i. Both have the same count, a multiple of the
// number of ranks, and must not overlap. Throws like all_reduce.
void all_to_all(Communicator& comm, Slice out, Slice in, std::string_view algorithm = "pairwise");

using AllToAllAlgorithm = Algorithm<Slice>;
const std::vector<AllToAllAlgorithm>& all_to_all_algorithms();

AllToAllAlgorithm all_to_all_pairwise();
AllToAllAlgorithm all_to_all_bruck();
AllToAllAlgorithm all_to_all_linear();

}  // namespace lockstep
