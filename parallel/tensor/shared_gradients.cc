#include "parallel/tensor/shared_gradients.h"

#include <numeric>

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

constexpr std::string_view algorithm = "ring";

Count count_of(const std::vector<Range>& ranges) {
  Count count = 0;
  for (const Range& range : ranges) count += range.count;
  return count;
}

}  // namespace

SharedGradients::SharedGradients(Communicator& tensor, Parameters& parameters, Ledger& ledger)
    : parameters_(parameters) {
  for (const int ranks : parameters.partial_groups()) {
    std::vector<Range> ranges = parameters.partial_over(ranks);
    const Count count = count_of(ranges);
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), tensor.rank() / ranks * ranks);
    groups_.push_back(
        {.comm = tensor.subgroup(members),
         .ranges = std::move(ranges),
         .packed = Tensor({count}, parameters.dtype(), ledger, MemoryUse::communication)});
    groups_.back().comm->set_label(label);
  }
}

void SharedGradients::reduce() {
  for (Group& group : groups_) {
    const Slice packed = group.packed.slice();
    const auto with_ranges = [&](auto move) {
      Count place = 0;
      for (const Range& range : group.ranges) {
        move(packed.part(place, range.count),
             parameters_.gradients().part(range.first, range.count));
        place += range.count;
      }
    };
    with_ranges([](Slice here, Slice there) { here.device->copy(here, there); });
    all_reduce(*group.comm, packed, ReduceOp::sum, algorithm);
    with_ranges([](Slice here, Slice there) { there.device->copy(there, here); });
  }
}

Traffic shared_gradients_traffic(const Parameters& parameters, const LayerSplit& split) {
  Traffic sum;
  for (const int ranks : parameters.partial_groups())
    sum += find_algorithm(all_reduce_algorithms(), "all_reduce", algorithm)
               .traffic({.ranks = ranks,
                         .count = count_of(parameters.partial_over(ranks)),
                         .element_bytes = element_bytes(parameters.dtype())},
                        split.rank % ranks);
  return sum;
}

Count shared_gradients_bytes(const Parameters& parameters) {
  Count count = 0;
  for (const int ranks : parameters.partial_groups())
    count += count_of(parameters.partial_over(ranks));
  return count * element_bytes(parameters.dtype());
}

}  // namespace lockstep
