// Reduce-scatter: the data are cut into p chunks; rank i ends with chunk i, combined over all
// ranks. Lists its algorithms.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/ring_order.h"

namespace lockstep {

// Afterwards Chunks(data, p)[rank] is op over all ranks' data; the other chunks hold partial
// results. Throws Error if the algorithm is unknown or cannot run here (bad_input), if ranks
// disagree (mismatch), and if a rank fails or does not come.
void reduce_scatter(Communicator& comm, Slice data, ReduceOp op = ReduceOp::sum,
                    std::string_view algorithm = "ring");

using ReduceScatterAlgorithm = Algorithm<ReduceOp>;
const std::vector<ReduceScatterAlgorithm>& reduce_scatter_algorithms();

ReduceScatterAlgorithm reduce_scatter_ring();
ReduceScatterAlgorithm reduce_scatter_recursive_halving();
ReduceScatterAlgorithm reduce_scatter_pairwise();

// The same among the ranks of a ring. Rank i of the ring owns chunk i. Does not complete an average.
void ring_reduce_scatter(Communicator& comm, Slice data, ReduceOp op, const RingOrder& ring);
Traffic ring_reduce_scatter_traffic(Count count, int ranks, int rank);

// The same among ranks 0 .. p - 1, where p is a power of two, with p chunks. This rank is one of
// them. Does not complete an average.
void recursive_halving(Communicator& comm, const Chunks& chunk, int p, ReduceOp op);
Traffic recursive_halving_traffic(Count count, int p, int rank);

}  // namespace lockstep
