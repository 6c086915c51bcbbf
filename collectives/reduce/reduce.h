// Reduce: the root ends with the combination of all ranks' data. Lists its algorithms.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

// data of rank `root` = op over all ranks' data. On the other ranks data holds partial results
// afterwards. Throws like all_reduce.
void reduce(Communicator& comm, Slice data, ReduceOp op, int root = 0,
            std::string_view algorithm = "binomial_tree");

using ReduceAlgorithm = Algorithm<ReduceOp, int>;
const std::vector<ReduceAlgorithm>& reduce_algorithms();

ReduceAlgorithm reduce_binomial_tree();
ReduceAlgorithm reduce_linear();
ReduceAlgorithm reduce_scatter_gather();

// Does not complete an average.
void binomial_reduce(Communicator& comm, Slice data, ReduceOp op, int root);
Traffic binomial_reduce_traffic(const Problem& problem, int rank);

}  // namespace lockstep
