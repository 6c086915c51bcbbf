#include "collectives/barrier/barrier.h"

namespace lockstep {

const std::vector<BarrierAlgorithm>& barrier_algorithms() {
  static const std::vector<BarrierAlgorithm> algorithms = {barrier_dissemination()};
  return algorithms;
}

void barrier(Communicator& comm) {
  const Slice nothing{.dtype = DType::u8, .device = &host_device()};
  const BarrierAlgorithm& chosen = barrier_algorithms().front();
  const CollectiveCall call(comm, Operation::barrier, chosen.name, nothing);
  chosen.run(comm, nothing);
}

}  // namespace lockstep
