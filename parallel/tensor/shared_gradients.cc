#include "parallel/tensor/shared_gradients.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

constexpr std::string_view algorithm = "ring";

Count most_packed(const Parameters& parameters, int ranks, const SummedTogether& together,
                  const HeldCount& held) {
  Count most = 0;
  for (const std::vector<Range>& within : together)
    most = std::max(most, held(common(parameters.partial_over(Axis::tp, ranks), within)));
  return most;
}

}  // namespace

SharedGradients::SharedGradients(Communicator& tensor, const Parameters& parameters,
                                 GradientMemory memory, const SummedTogether& together,
                                 const HeldCount& held, Ledger& ledger)
    : parameters_(parameters), memory_(std::move(memory)) {
  for (const int ranks : parameters.partial_groups(Axis::tp)) {
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), tensor.rank() / ranks * ranks);
    groups_.push_back({.comm = tensor.subgroup(members),
                       .ranges = parameters.partial_over(Axis::tp, ranks),
                       .packed = Tensor({most_packed(parameters, ranks, together, held)},
                                        parameters.dtype(), ledger, MemoryUse::communication)});
    groups_.back().comm->set_label(label);
  }
}

void SharedGradients::reduce(const std::vector<Range>& within) {
  for (Group& group : groups_) {
    const std::vector<Slice> gradients = memory_(common(group.ranges, within));
    Count count = 0;
    for (const Slice& gradient : gradients) count += gradient.count;
    if (count == 0) continue;
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
                                 const SummedTogether& together, const HeldCount& held) {
  Traffic sum;
  for (const int ranks : parameters.partial_groups(Axis::tp))
    for (const std::vector<Range>& within : together)
      if (const Count count = held(common(parameters.partial_over(Axis::tp, ranks), within)))
        sum += find_algorithm(all_reduce_algorithms(), "all_reduce", algorithm)
                   .traffic({.ranks = ranks,
                             .count = count,
                             .element_bytes = element_bytes(parameters.dtype())},
                            split.rank % ranks);
  return sum;
}

Count shared_gradients_bytes(const Parameters& parameters, const SummedTogether& together,
                             const HeldCount& held) {
  Count sum = 0;
  for (const int ranks : parameters.partial_groups(Axis::tp))
    sum += most_packed(parameters, ranks, together, held);
  return sum * element_bytes(parameters.dtype());
}

}  // namespace lockstep
