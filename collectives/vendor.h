// The library's own collective as an entry of a table, measured next to ours.
#pragma once

#include "collectives/algorithm.h"

namespace lockstep {

// An entry's arguments in addition to the data, for any table.
struct VendorArguments {
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  Slice out;
  RankCounts counts;

  void take(ReduceOp reduction) { op = reduction; }
  void take(int rank) { root = rank; }
  void take(Slice slice) { out = slice; }
  void take(RankCounts given) { counts = given; }
};

// For tables whose algorithms take (Slice data, Arguments...) or (Slice out, Slice in).
template <Operation operation, typename... Arguments>
Algorithm<Arguments...> vendor_algorithm() {
  return {.name = "vendor",
          .run =
              [](Communicator& comm, Slice data, Arguments... arguments) {
                VendorArguments taken;
                (taken.take(arguments), ...);
                constexpr bool has_out = (std::is_same_v<Arguments, Slice> || ...);
                const Slice in = has_out ? taken.out : data, out = has_out ? data : Slice{};
                comm.transport().vendor()->run(operation, in, out, taken.op, taken.root,
                                               taken.counts);
              },
          .run_out_of_place = operation == Operation::all_reduce
                           ? +[](Communicator& comm, Slice out, Slice in, Arguments... arguments) {
                               VendorArguments taken;
                               (taken.take(arguments), ...);
                               comm.transport().vendor()->run(operation, in, out, taken.op, 0, {});
                             }
                           : nullptr,
          .need = Need::vendor};
}

}  // namespace lockstep
