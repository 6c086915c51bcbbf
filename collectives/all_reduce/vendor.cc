// The all-reduce of the library underneath (MPI_Allreduce), to be measured beside ours.
#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {

AllReduceAlgorithm all_reduce_vendor() {
  return {.name = "vendor",
          .run = [](Communicator& comm, Slice data,
                    ReduceOp op) { comm.transport().vendor()->all_reduce(data, op); },
          .need = Need::vendor};
}

}  // namespace lockstep
