#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {

void reduce_scatter(Communicator& comm, Slice data, ReduceOp op) {
  const CollectiveCall call(comm, Operation::reduce_scatter, "ring", data, op);
  ring_reduce_scatter(comm, data, op);
}

}  // namespace lockstep
