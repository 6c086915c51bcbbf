// Reduce: the root ends with the combination of all ranks' data.
#pragma once

#include "collectives/communicator.h"

namespace lockstep {

// data of rank `root` = op over the ranks of data. On the other ranks data holds partial results
// afterwards.
void reduce(Communicator& comm, Slice data, ReduceOp op, int root = 0);

void binomial_reduce(Communicator& comm, Slice data, ReduceOp op, int root);

}  // namespace lockstep
