#include "parallel/tensor/shared_gradients.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

constexpr std::string_view algorithm = "ring";

}  // namespace

SharedGradients::SharedGradients(Communicator& tensor, const Parameters& parameters,
                                 GradientMemory memory, Ledger& ledger)
    : parameters_(parameters), memory_(std::move(memory)), ledger_(ledger) {
  for (const int ranks : parameters.partial_groups(Axis::tp)) {
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), tensor.rank() / ranks * ranks);
    groups_.push_back({.comm = tensor.subgroup(members),
                       .ranges = parameters.partial_over(Axis::tp, ranks),
                       .packed = {}});
    groups_.back().comm->set_label(label);
  }
}

void SharedGradients::reduce(const std::vector<Range>& within) {
  for (Group& group : groups_) {
    const std::vector<Slice> gradients = memory_(common(group.ranges, within));
    Count count = 0;
    for (const Slice& gradient : gradients) count += gradient.count;
    if (count == 0) continue;
    if (group.packed.count() < count) {
      group.packed = {};
      group.packed = Tensor({count}, parameters_.dtype(), ledger_, MemoryUse::communication);
    }
    const Slice packed = group.packed.slice().first(count);
    const auto for_each = [&](auto move) {
      Count place = 0;
      for (const Slice& gradient : gradients) {
        move(packed.part(place, gradient.count), gradient);
        place += gradient.count;
      }
    };
    for_each([](Slice here, Slice there) { here.device->copy(here, there); });
    all_reduce(*group.comm, packed, ReduceOp::sum, algorithm);
    for_each([](Slice here, Slice there) { there.device->copy(there, here); });
  }
}

Traffic shared_gradients_traffic(const Parameters& parameters, const LayerSplit& split,
                                 const SummedTogether& together, const HeldCount& count) {
  Traffic sum;
  for (const int ranks : parameters.partial_groups(Axis::tp))
    for (const std::vector<Range>& within : together)
      if (const Count held = count(common(parameters.partial_over(Axis::tp, ranks), within)))
        sum += find_algorithm(all_reduce_algorithms(), "all_reduce", algorithm)
                   .traffic({.ranks = ranks,
                             .count = held,
                             .element_bytes = element_bytes(parameters.dtype())},
                            split.rank % ranks);
  return sum;
}

Count shared_gradients_bytes(const Parameters& parameters, const SummedTogether& together,
                             const HeldCount& count) {
  Count sum = 0;
  for (const int ranks : parameters.partial_groups(Axis::tp)) {
    Count most = 0;
    for (const std::vector<Range>& within : together)
      most = std::max(most, count(common(parameters.partial_over(Axis::tp, ranks), within)));
    sum += most;
  }
  return sum * element_bytes(parameters.dtype());
}

}  // namespace lockstep
