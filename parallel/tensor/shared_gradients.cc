#include "parallel/tensor/shared_gradients.h"

#include <numeric>

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

constexpr std::string_view algorithm = "ring";

}  // namespace

SharedGradients::SharedGradients(Communicator& tensor, const Parameters& parameters,
                                 const GradientMemory& memory, Ledger& ledger) {
  for (const int ranks : parameters.partial_groups(Axis::tp)) {
    std::vector<Slice> gradients = memory(parameters.partial_over(Axis::tp, ranks));
    Count count = 0;
    for (const Slice& slice : gradients) count += slice.count;
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), tensor.rank() / ranks * ranks);
    groups_.push_back(
        {.comm = tensor.subgroup(members),
         .gradients = std::move(gradients),
         .packed = Tensor({count}, parameters.dtype(), ledger, MemoryUse::communication)});
    groups_.back().comm->set_label(label);
  }
}

void SharedGradients::reduce() {
  for (Group& group : groups_) {
    const Slice packed = group.packed.slice();
    const auto for_each = [&](auto move) {
      Count place = 0;
      for (const Slice& gradient : group.gradients) {
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
                                 const HeldCount& count) {
  Traffic sum;
  for (const int ranks : parameters.partial_groups(Axis::tp))
    sum += find_algorithm(all_reduce_algorithms(), "all_reduce", algorithm)
               .traffic({.ranks = ranks,
                         .count = count(parameters.partial_over(Axis::tp, ranks)),
                         .element_bytes = element_bytes(parameters.dtype())},
                        split.rank % ranks);
  return sum;
}

Count shared_gradients_bytes(const Parameters& parameters, const HeldCount& count) {
  Count sum = 0;
  for (const int ranks : parameters.partial_groups(Axis::tp))
    sum += count(parameters.partial_over(Axis::tp, ranks));
  return sum * element_bytes(parameters.dtype());
}

}  // namespace lockstep
