#include "collectives/broadcast/broadcast.h"

namespace lockstep {

void broadcast(Communicator& comm, Slice data, int root) {
  const CollectiveCall call(comm, Operation::broadcast, "binomial", data, ReduceOp::sum, root);
  binomial_broadcast(comm, data, root);
}

}  // namespace lockstep
