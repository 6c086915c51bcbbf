#include "collectives/barrier/barrier.h"

#include "collectives/vendor.h"

namespace lockstep {

const std::vector<BarrierAlgorithm>& barrier_algorithms() {
  static const std::vector<BarrierAlgorithm> algorithms = {
      barrier_dissemination(), barrier_direct(), vendor_algorithm<Operation::barrier>()};
  return algorithms;
}

void barrier(Communicator& comm, std::string_view algorithm) {
  const Slice nothing{.dtype = DType::u8, .device = &host_device()};
  const auto& chosen =
      usable_algorithm(barrier_algorithms(), Operation::barrier, algorithm, comm, nothing);
  const CollectiveCall call(comm, Operation::barrier, chosen.name, nothing);
  chosen.run(comm, nothing);
}

}  // namespace lockstep
