// The all-reduce of the library underneath (MPI_Allreduce), to be measured beside ours.
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"

namespace lockstep {

void vendor_all_reduce(Communicator& comm, Slice data, ReduceOp op) {
  VendorCollectives* vendor = comm.transport().vendor();
  require(vendor != nullptr, "this transport has no collectives of its own",
          "start the program under mpirun");
  vendor->all_reduce(data, op);
}

}  // namespace lockstep
