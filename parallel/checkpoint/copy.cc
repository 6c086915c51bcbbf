#include "parallel/checkpoint/copy.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/ops/narrow_types.h"
#include "parallel/plan/environment.h"

namespace lockstep {

StateCopy::StateCopy(const RankPart& part, Ledger& ledger) : file_(part.file()) {
  Count bytes = 0;
  for (const StoredBox& stored : file_.tensors) {
    begins_.push_back(bytes);
    bytes += stored.bytes();
  }
  memory_ = Memory(host_device(), computes_on_host(ledger) ? &ledger : nullptr,
                   MemoryUse::checkpoints, bytes);
  part.copy([&](std::size_t tensor, Count first, Slice values) {
    const Slice into = slice(tensor).part(first, values.count);
    into.device->copy(into, values);
  });
}

void StateCopy::write(FileWriter& writer) const {
  for (std::size_t t = 0; t < begins_.size(); ++t) writer.write(t, 0, slice(t));
}

Slice StateCopy::slice(std::size_t tensor) const {
  const StoredBox& stored = file_.tensors[tensor];
  return {memory_.data() + begins_[tensor], stored.box.count(), stored.dtype, &host_device()};
}

namespace {

// Returns the elements of a flat buffer that this rank counts, without padding and tied copies.
std::vector<Range> real_ranges(const Plan& plan, const Parameters& parameters) {
  std::vector<Range> ranges;
  for (const PlacedBox& placed :
       boxes_of(parameters.list(), {0, parameters.count()}, whole_boxes(plan.model), &parameters)) {
    const bool is_one_run = placed.box.columns.count == placed.stride;
    const Count rows = is_one_run ? placed.box.rows.count : 1;
    for (Count row = 0; row < placed.box.rows.count; row += rows)
      ranges.push_back({placed.place + row * placed.stride, rows * placed.box.columns.count});
  }
  return ranges;
}

// Replicas that hold the same elements divide them evenly.
Count in_share(Range range, Count all, int copies, int copy) {
  const Parts shares(all, copies);
  return std::max<Count>(0, intersection(range, Range{shares.offset(copy), shares[copy]}).count);
}

Count written_elements(const Plan& plan, const ReplicaGroup& replicas, const Parameters& parameters,
                       const RankUnits* units) {
  const std::vector<Range> ranges = real_ranges(plan, parameters);
  Count elements = 0;
  if (!units) {
    for (const Range& range : ranges)
      elements += in_share(range, parameters.count(), replicas.copies, replicas.copy);
    return elements;
  }
  const int shards = replicas.shards(), shard = replicas.shard();
  for (const OwnPart& part : own_parts(parameters, *units, shards, shard, ranges))
    elements += in_share(part.range, units->all[part.unit].layout(shards).shard(shard),
                         replicas.replicas, replicas.replica());
  return elements;
}

Count states_copied(const Plan& plan) {
  return std::ssize(stored_states(optimizer_settings(plan.options)));
}

bool copies_states(const Plan& plan) {
  return !plan.options.checkpoint.empty() && plan.options.checkpoint_async;
}

}  // namespace

Count checkpoint_copy_bytes(const Plan& plan, Count elements) {
  return copies_states(plan)
             ? states_copied(plan) * elements * element_bytes(statistics_type(plan.options.dtype))
             : 0;
}

std::string checkpoint_copy_formula(const Plan& plan, std::string_view psi) {
  return fmt::format("{} * {} * {}", states_copied(plan), psi,
                     element_bytes(statistics_type(plan.options.dtype)));
}

Terms checkpoint_terms(const Plan& plan, const ReplicaGroup& replicas, const Parameters& parameters,
                       const RankUnits* units, bool computes_on_host) {
  Terms terms{.part = PlanPart::checkpoints};
  const bool copies = copies_states(plan) && computes_on_host;
  terms.hold({.use = MemoryUse::checkpoints,
              .bytes = copies ? checkpoint_copy_bytes(
                                    plan, written_elements(plan, replicas, parameters, units))
                              : 0,
              .formula = copies ? checkpoint_copy_formula(plan, "Psi_written") : "0"});
  return terms;
}

}  // namespace lockstep
