#include "collectives/reduce/reduce.h"

#include "collectives/vendor.h"

namespace lockstep {

const std::vector<ReduceAlgorithm>& reduce_algorithms() {
  static const std::vector<ReduceAlgorithm> algorithms = {
      reduce_binomial_tree(), reduce_linear(), reduce_scatter_gather(),
      vendor_algorithm<Operation::reduce, ReduceOp, int>()};
  return algorithms;
}

void reduce(Communicator& comm, Slice data, ReduceOp op, int root, std::string_view algorithm) {
  const auto& chosen =
      usable_algorithm(reduce_algorithms(), Operation::reduce, algorithm, comm, data);
  const CollectiveCall call(comm, Operation::reduce, chosen.name, data, op, root);
  chosen.run(comm, data, op, root);
  if (comm.rank() == root) comm.complete(data, op);
}

}  // namespace lockstep
