// Reduce: the root ends with the combination of all ranks' data. The menu of its algorithms.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

// data of rank `root` = op over the ranks of data. On the other ranks data holds partial results
// afterwards. Throws as all_reduce does.
void reduce(Communicator& comm, Slice data, ReduceOp op, int root = 0,
            std::string_view algorithm = "binomial_tree");

using ReduceAlgorithm = Algorithm<ReduceOp, int>;
const std::vector<ReduceAlgorithm>& reduce_algorithms();

ReduceAlgorithm reduce_binomial_tree();
ReduceAlgorithm reduce_linear();
ReduceAlgorithm reduce_scatter_gather();

// Does not end an average.
void binomial_reduce(Communicator& comm, Slice data, ReduceOp op, int root);
Traffic binomial_reduce_traffic(const Problem& problem, int rank);

}  // namespace lockstep
