#include "collectives/reduce/reduce.h"

namespace lockstep {

void reduce(Communicator& comm, Slice data, ReduceOp op, int root) {
  const CollectiveCall call(comm, Operation::reduce, "binomial", data, op, root);
  binomial_reduce(comm, data, op, root);
}

}  // namespace lockstep
