// Scatter: every rank ends with its chunk of the root's data. The menu of its algorithms.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

// Afterwards Chunks(data, p)[rank] is what it was on rank `root`; other chunks keep what they held.
// Throws as all_reduce does.
void scatter(Communicator& comm, Slice data, int root = 0, std::string_view algorithm = "linear");

using ScatterAlgorithm = Algorithm<int>;
const std::vector<ScatterAlgorithm>& scatter_algorithms();

ScatterAlgorithm scatter_linear();
ScatterAlgorithm scatter_binomial_tree();

void binomial_scatter(Communicator& comm, Slice data, int root);
Traffic binomial_scatter_traffic(const Problem& problem, int rank);

}  // namespace lockstep
