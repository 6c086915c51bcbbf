#include "collectives/all_to_all/all_to_all.h"

#include "collectives/lab.h"
#include "collectives/vendor.h"

namespace lockstep {

const std::vector<AllToAllAlgorithm>& all_to_all_algorithms() {
  static const std::vector<AllToAllAlgorithm> algorithms =
      with_lab<AllToAllAlgorithm>({all_to_all_pairwise(), all_to_all_bruck(), all_to_all_linear(),
                                   vendor_algorithm<Operation::all_to_all, Slice>()},
                                  all_to_all_pairwise(), lab_collectives().all_to_all);
  return algorithms;
}

void all_to_all(Communicator& comm, Slice out, Slice in, std::string_view algorithm) {
  require(
      out.count == in.count && out.dtype == in.dtype && in.count % comm.size() == 0,
      [&] {
        return fmt::format("all_to_all of {} {} into {} {} among {} ranks", in.count,
                           name_of(in.dtype), out.count, name_of(out.dtype), comm.size());
      },
      "use slices of one type and count, a multiple of the number of ranks");
  const auto& chosen =
      usable_algorithm(all_to_all_algorithms(), Operation::all_to_all, algorithm, comm, in);
  const CollectiveCall call(comm, Operation::all_to_all, chosen.name, in);
  chosen.run(comm, out, in);
}

}  // namespace lockstep
