// Gather: the root ends with all ranks' chunks. Lists its algorithms.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

// Rank i provides Chunks(data, p)[i]. Afterwards rank `root` holds all of data. Throws like
// all_reduce.
void gather(Communicator& comm, Slice data, int root = 0, std::string_view algorithm = "linear");

// The texts of all ranks, in order, on `root`; an empty vector elsewhere. Texts may have different
// lengths.
std::vector<std::string> gather_text(Communicator& comm, const std::string& text, int root = 0);

using GatherAlgorithm = Algorithm<int>;
const std::vector<GatherAlgorithm>& gather_algorithms();

GatherAlgorithm gather_linear();
GatherAlgorithm gather_binomial_tree();

void binomial_gather(Communicator& comm, Slice data, int root);
Traffic binomial_gather_traffic(const Problem& problem, int rank);

}  // namespace lockstep
