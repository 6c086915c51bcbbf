// Scatter: every rank ends with its chunk of the root's data. Lists its algorithms.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

// Afterwards Chunks(data, p)[rank] has the data of rank `root`; other chunks stay unchanged. Throws
// like all_reduce.
void scatter(Communicator& comm, Slice data, int root = 0, std::string_view algorithm = "linear");

using ScatterAlgorithm = Algorithm<int>;
const std::vector<ScatterAlgorithm>& scatter_algorithms();

ScatterAlgorithm scatter_linear();
ScatterAlgorithm scatter_binomial_tree();

void binomial_scatter(Communicator& comm, Slice data, int root);
Traffic binomial_scatter_traffic(const Problem& problem, int rank);

}  // namespace lockstep
