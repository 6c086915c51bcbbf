// All-reduce: every rank ends with the combination of all ranks' data. Lists its algorithms.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

// data = op over all ranks' data, in place, for any count. Every rank gets the same bits. Throws
// Error if the algorithm is unknown or cannot run here (bad_input), if ranks disagree (mismatch),
// and if a rank fails or does not come.
void all_reduce(Communicator& comm, Slice data, ReduceOp op = ReduceOp::sum,
                std::string_view algorithm = "ring");

// out = op over all ranks' `in`, which stays unchanged. Both have the same count and type and must
// not overlap.
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
