#include "collectives/all_gather/all_gather.h"

namespace lockstep {

void all_gather(Communicator& comm, Slice data) {
  const CollectiveCall call(comm, Operation::all_gather, "ring", data);
  ring_all_gather(comm, data);
}

}  // namespace lockstep
