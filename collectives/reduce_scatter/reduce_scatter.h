// Reduce-scatter: of p chunks of the data, rank i ends with chunk i combined over all ranks. The
// menu of its algorithms.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/circle.h"

namespace lockstep {

// Afterwards Chunks(data, p)[rank] is op over the ranks of that chunk; the other chunks hold
// partial results. Throws Error when the algorithm's name is unknown or it cannot run here
// (bad_input), when ranks disagree (mismatch), and when one fails or stays away.
void reduce_scatter(Communicator& comm, Slice data, ReduceOp op = ReduceOp::sum,
                    std::string_view algorithm = "ring");

using ReduceScatterAlgorithm = Algorithm<ReduceOp>;
const std::vector<ReduceScatterAlgorithm>& reduce_scatter_algorithms();

ReduceScatterAlgorithm reduce_scatter_ring();
ReduceScatterAlgorithm reduce_scatter_recursive_halving();
ReduceScatterAlgorithm reduce_scatter_pairwise();

// The same among the ranks of a circle; rank i of it owns chunk i. Does not end an average.
void ring_reduce_scatter(Communicator& comm, Slice data, ReduceOp op, const Circle& circle);
Traffic ring_reduce_scatter_traffic(Count count, int ranks, int rank);

// The same among the ranks 0 .. p - 1, a power of two, of which this is one, for p chunks. Does not
// end an average.
void recursive_halving(Communicator& comm, const Chunks& chunk, int p, ReduceOp op);
Traffic recursive_halving_traffic(Count count, int p, int rank);

}  // namespace lockstep
