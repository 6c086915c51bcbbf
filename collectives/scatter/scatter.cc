#include "collectives/scatter/scatter.h"

#include "collectives/vendor.h"

namespace lockstep {

const std::vector<ScatterAlgorithm>& scatter_algorithms() {
  static const std::vector<ScatterAlgorithm> algorithms = {
      scatter_linear(), scatter_binomial_tree(), vendor_algorithm<Operation::scatter, int>()};
  return algorithms;
}

void scatter(Communicator& comm, Slice data, int root, std::string_view algorithm) {
  const auto& chosen =
      usable_algorithm(scatter_algorithms(), Operation::scatter, algorithm, comm, data);
  const CollectiveCall call(comm, Operation::scatter, chosen.name, data, ReduceOp::sum, root);
  chosen.run(comm, data, root);
}

}  // namespace lockstep
