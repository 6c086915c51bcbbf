// Reduce-scatter: of p chunks of the data, rank i ends with chunk i combined over all ranks.
#pragma once

#include <string_view>

#include "collectives/communicator.h"

namespace lockstep {

// Afterwards Chunks(data, p)[rank] is op over the ranks of that chunk; the other chunks hold
// partial results.
void reduce_scatter(Communicator& comm, Slice data, ReduceOp op = ReduceOp::sum);

void ring_reduce_scatter(Communicator& comm, Slice data, ReduceOp op);

}  // namespace lockstep
