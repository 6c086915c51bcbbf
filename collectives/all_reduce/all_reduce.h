// All-reduce: every rank ends with the combination of all ranks' data. The menu of its algorithms.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

// data (any count, also 0) = op over the ranks of data, in place, the same bits on every rank.
// Throws Error when the algorithm's name is unknown or it cannot run here (bad_input), when ranks
// disagree (mismatch), and when one fails or stays away.
void all_reduce(Communicator& comm, Slice data, ReduceOp op = ReduceOp::sum,
                std::string_view algorithm = "ring");

// out = op over the ranks of in, which stays as it is. Both of one count and type, and apart from
// each other.
void all_reduce(Communicator& comm, Slice out, Slice in, ReduceOp op = ReduceOp::sum,
                std::string_view algorithm = "ring");

using AllReduceAlgorithm = Algorithm<ReduceOp>;
const std::vector<AllReduceAlgorithm>& all_reduce_algorithms();

AllReduceAlgorithm all_reduce_ring();
AllReduceAlgorithm all_reduce_bidirectional_ring();
AllReduceAlgorithm all_reduce_segmented_ring();
AllReduceAlgorithm all_reduce_recursive_doubling();
AllReduceAlgorithm all_reduce_halving_doubling();
AllReduceAlgorithm all_reduce_binomial_tree();
AllReduceAlgorithm all_reduce_double_binary_tree();
AllReduceAlgorithm all_reduce_linear();
AllReduceAlgorithm all_reduce_hierarchical();
AllReduceAlgorithm all_reduce_torus();
AllReduceAlgorithm all_reduce_direct();

}  // namespace lockstep
