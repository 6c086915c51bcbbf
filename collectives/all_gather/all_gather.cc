#include "collectives/all_gather/all_gather.h"

#include "collectives/lab.h"
#include "collectives/vendor.h"

namespace lockstep {

const std::vector<AllGatherAlgorithm>& all_gather_algorithms() {
  static const std::vector<AllGatherAlgorithm> algorithms = with_lab<AllGatherAlgorithm>(
      {all_gather_ring(), all_gather_recursive_doubling(), all_gather_bruck(), all_gather_linear(),
       vendor_algorithm<Operation::all_gather>()},
      all_gather_ring(), lab_collectives().all_gather);
  return algorithms;
}

void all_gather(Communicator& comm, Slice data, std::string_view algorithm) {
  const auto& chosen =
      usable_algorithm(all_gather_algorithms(), Operation::all_gather, algorithm, comm, data);
  const CollectiveCall call(comm, Operation::all_gather, chosen.name, data);
  chosen.run(comm, data);
}

}  // namespace lockstep
