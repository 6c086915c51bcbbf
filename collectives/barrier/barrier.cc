#include "collectives/barrier/barrier.h"

namespace lockstep {

void barrier(Communicator& comm) {
  const CollectiveCall call(comm, Operation::barrier, "dissemination", Slice{.dtype = DType::u8});
  dissemination_barrier(comm);
}

}  // namespace lockstep
