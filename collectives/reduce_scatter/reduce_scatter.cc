#include "collectives/reduce_scatter/reduce_scatter.h"

#include "collectives/lab.h"
#include "collectives/vendor.h"

namespace lockstep {

const std::vector<ReduceScatterAlgorithm>& reduce_scatter_algorithms() {
  static const std::vector<ReduceScatterAlgorithm> algorithms = with_lab<ReduceScatterAlgorithm>(
      {reduce_scatter_ring(), reduce_scatter_recursive_halving(), reduce_scatter_pairwise(),
       vendor_algorithm<Operation::reduce_scatter, ReduceOp>()},
      reduce_scatter_ring(), lab_collectives().reduce_scatter);
  return algorithms;
}

void reduce_scatter(Communicator& comm, Slice data, ReduceOp op, std::string_view algorithm) {
  const auto& chosen = usable_algorithm(reduce_scatter_algorithms(), Operation::reduce_scatter,
                                        algorithm, comm, data);
  const CollectiveCall call(comm, Operation::reduce_scatter, chosen.name, data, op);
  chosen.run(comm, data, op);
}

}  // namespace lockstep
