#include "collectives/all_reduce/all_reduce.h"

#include "collectives/lab.h"
#include "collectives/vendor.h"

namespace lockstep {

const std::vector<AllReduceAlgorithm>& all_reduce_algorithms() {
  static const std::vector<AllReduceAlgorithm> algorithms = with_lab<AllReduceAlgorithm>(
      {
          all_reduce_ring(),
          all_reduce_bidirectional_ring(),
          all_reduce_segmented_ring(),
          all_reduce_recursive_doubling(),
          all_reduce_halving_doubling(),
          all_reduce_binomial_tree(),
          all_reduce_double_binary_tree(),
          all_reduce_linear(),
          all_reduce_hierarchical(),
          all_reduce_torus(),
          all_reduce_direct(),
          vendor_algorithm<Operation::all_reduce, ReduceOp>(),
      },
      all_reduce_recursive_doubling(), lab_collectives().all_reduce);
  return algorithms;
}

void all_reduce(Communicator& comm, Slice data, ReduceOp op, std::string_view algorithm) {
  const auto& chosen =
      usable_algorithm(all_reduce_algorithms(), Operation::all_reduce, algorithm, comm, data);
  const CollectiveCall call(comm, Operation::all_reduce, chosen.name, data, op);
  if (comm.size() > 1) chosen.run(comm, data, op);
}

void all_reduce(Communicator& comm, Slice out, Slice in, ReduceOp op, std::string_view algorithm) {
  require(
      out.count == in.count && out.dtype == in.dtype,
      [&] {
        return fmt::format("all_reduce from {} {} to {} {}", in.count, name_of(in.dtype), out.count,
                           name_of(out.dtype));
      },
      "both must have one count and type");
  const auto& chosen =
      usable_algorithm(all_reduce_algorithms(), Operation::all_reduce, algorithm, comm, in);
  const CollectiveCall call(comm, Operation::all_reduce, chosen.name, in, op);
  if (chosen.run_out_of_place) return chosen.run_out_of_place(comm, out, in, op);
  comm.copy(out, in);
  if (comm.size() > 1) chosen.run(comm, out, op);
}

}  // namespace lockstep
