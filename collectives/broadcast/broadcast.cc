#include "collectives/broadcast/broadcast.h"

#include "collectives/vendor.h"

namespace lockstep {

const std::vector<BroadcastAlgorithm>& broadcast_algorithms() {
  static const std::vector<BroadcastAlgorithm> algorithms = {
      broadcast_binomial_tree(), broadcast_linear(), broadcast_chain(),
      broadcast_scatter_all_gather(), vendor_algorithm<Operation::broadcast, int>()};
  return algorithms;
}

void broadcast(Communicator& comm, Slice data, int root, std::string_view algorithm) {
  const auto& chosen =
      usable_algorithm(broadcast_algorithms(), Operation::broadcast, algorithm, comm, data);
  const CollectiveCall call(comm, Operation::broadcast, chosen.name, data, ReduceOp::sum, root);
  chosen.run(comm, data, root);
}

}  // namespace lockstep
