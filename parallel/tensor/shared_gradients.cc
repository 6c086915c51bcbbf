#include "parallel/tensor/shared_gradients.h"

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

constexpr std::string_view algorithm = "ring";

// Columns of keys and values in every matrix and bias that has them: behind those of the queries.
std::vector<FlatRange> keys_and_values(const Parameters& parameters) {
  std::vector<FlatRange> ranges;
  for (const Parameter& parameter : parameters.list()) {
    if (!parameter.cut || parameter.cut->columns.size() != 3) continue;
    const auto& columns = parameter.cut->columns;
    const Count queries = columns[0].count, others = columns[1].count + columns[2].count;
    for (Count row = 0; row < parameter.cut->rows.count; ++row)
      ranges.push_back({parameter.offset + row * (queries + others) + queries, others});
  }
  return ranges;
}

}  // namespace

SharedGradients::SharedGradients(Communicator& tensor, Parameters& parameters,
                                 const LayerSplit& split, int kv_heads, Ledger& ledger)
    : parameters_(parameters) {
  std::vector<FlatRange> whole;
  for (std::size_t i = 0; i < parameters.list().size(); ++i) {
    const Parameter& parameter = parameters.list()[i];
    if (parameter.cut) continue;
    whole.push_back({parameter.offset, parameter.count});
    if (split.rank > 0) parameters.mark_as_copy(static_cast<int>(i));
  }
  if (split.by_sequence && split.ranks > 1) add_group(tensor, whole, ledger);
  if (kv_heads >= split.ranks) return;
  sharing_ = tensor.split(kv_heads * split.rank / split.ranks, split.rank);
  add_group(*sharing_, keys_and_values(parameters), ledger);
}

void SharedGradients::add_group(Communicator& comm, std::vector<FlatRange> ranges, Ledger& ledger) {
  Count count = 0;
  for (const FlatRange& range : ranges) count += range.count;
  groups_.push_back(
      {.comm = &comm,
       .ranges = std::move(ranges),
       .packed = Tensor({count}, parameters_.dtype(), ledger, MemoryUse::communication)});
}

void SharedGradients::reduce() {
  for (Group& group : groups_) {
    const Slice packed = group.packed.slice();
    const auto with_ranges = [&](auto move) {
      Count place = 0;
      for (const FlatRange& range : group.ranges) {
        move(packed.part(place, range.count),
             parameters_.gradients().part(range.first, range.count));
        place += range.count;
      }
    };
    with_ranges([](Slice here, Slice there) { here.device->copy(here, there); });
    group.comm->set_label(label);
    all_reduce(*group.comm, packed, ReduceOp::sum, algorithm);
    with_ranges([](Slice here, Slice there) { there.device->copy(there, here); });
  }
}

Traffic SharedGradients::traffic() const {
  Traffic sum;
  for (const Group& group : groups_)
    sum += find_algorithm(all_reduce_algorithms(), "all_reduce", algorithm)
               .traffic({.ranks = group.comm->size(),
                         .count = group.packed.count(),
                         .element_bytes = element_bytes(parameters_.dtype())},
                        group.comm->rank());
  return sum;
}

}  // namespace lockstep
