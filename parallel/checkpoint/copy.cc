#include "parallel/checkpoint/copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

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

// The elements of a flat buffer that this rank counts, without padding and tied copies, by how many
// numbers a checkpoint holds for each.
std::map<Count, std::vector<Range>> counted_ranges(const Plan& plan, const Parameters& parameters) {
  const OptimizerSettings settings = optimizer_settings(plan.options);
  const WholeBoxes whole = whole_boxes(plan.model, lora_config(plan.options));
  std::map<Count, std::vector<Range>> ranges;
  for (const Parameter& parameter : parameters.list())
    for (const PlacedBox& placed : boxes_of(
             std::span(&parameter, 1), {parameter.offset, parameter.count}, whole, &parameters)) {
      const bool is_one_run = placed.box.columns.count == placed.stride;
      const Count rows = is_one_run ? placed.box.rows.count : 1;
      for (Count row = 0; row < placed.box.rows.count; row += rows)
        ranges[std::ssize(stored_states(settings, parameter))].push_back(
            {placed.place + row * placed.stride, rows * placed.box.columns.count});
    }
  return ranges;
}

// Replicas that hold the same elements divide them evenly.
Count in_share(Range range, Count all, int copies, int copy) {
  const Parts shares(all, copies);
  return std::max<Count>(0, intersection(range, Range{shares.offset(copy), shares[copy]}).count);
}

Count written_numbers(const Plan& plan, const ReplicaGroup& replicas, const Parameters& parameters,
                      const std::vector<Range>& stepped, const RankUnits* units) {
  Count written = 0;
  const int shards = replicas.shards(), shard = replicas.shard();
  for (const auto& [numbers, ranges] : counted_ranges(plan, parameters)) {
    if (!units)
      for (const Range& whole : stepped)
        for (const Range& range : common(ranges, {whole}))
          written += numbers * in_share({range.first - whole.first, range.count}, whole.count,
                                        replicas.copies, replicas.copy);
    else
      for (const OwnPart& part : own_parts(parameters, *units, shards, shard, ranges))
        written += numbers * in_share(part.range, units->all[part.unit].layout(shards).shard(shard),
                                      replicas.replicas, replicas.replica());
  }
  return written;
}

}  // namespace

bool copies_states(const Plan& plan) {
  return !plan.options.checkpoint.empty() && plan.options.checkpoint_async;
}

Count checkpoint_copy_bytes(const Plan& plan, Count elements) {
  const Count numbers = std::ssize(stored_states(optimizer_settings(plan.options), Parameter{}));
  return copies_states(plan)
             ? numbers * elements * element_bytes(statistics_type(plan.options.dtype))
             : 0;
}

std::string checkpoint_copy_formula(const Plan& plan, std::string_view psi) {
  const OptimizerSettings settings = optimizer_settings(plan.options);
  const auto all = std::ssize(stored_states(settings, Parameter{}));
  const auto less =
      all - std::ssize(stored_states(settings, Parameter{.name = "", .hidden = {1, {1}}}));
  const Count element = element_bytes(statistics_type(plan.options.dtype));
  if (less == 0) return fmt::format("{} * {} * {}", all, psi, element);
  return fmt::format("({} * {} - {} * {}_hidden) * {}", all, psi, less, psi, element);
}

Terms checkpoint_terms(const Plan& plan, const ReplicaGroup& replicas, const Parameters& parameters,
                       const std::vector<Range>& stepped, const RankUnits* units,
                       bool computes_on_host) {
  Terms terms{.part = PlanPart::checkpoints};
  const bool copies = copies_states(plan) && computes_on_host;
  terms.hold({.use = MemoryUse::checkpoints,
              .bytes = copies ? written_numbers(plan, replicas, parameters, stepped, units) *
                                    element_bytes(statistics_type(plan.options.dtype))
                              : 0,
              .formula = copies ? checkpoint_copy_formula(plan, "Psi_written") : "0"});
  return terms;
}

}  // namespace lockstep
