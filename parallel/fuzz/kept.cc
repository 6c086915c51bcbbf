#include "parallel/fuzz/kept.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "parallel/checkpoint/box.h"
#include "parallel/data/bucket.h"
#include "parallel/exchange/two_phase.h"

namespace lockstep {
namespace {

// Adds what this rank keeps to its flat buffer of gradients. Checkpoints have it as "kept.N", bucket by bucket.
void add_kept(Values& flat, const TrainingState& state, const Plan& plan) {
  const TrainOptions& o = plan.options;
  const std::string method = exchange_from_text(o.exchange).name;
  const bool is_two_phase = method == "onebit";
  const std::vector<Bucket> buckets =
      make_buckets(*state.parameters, o.first_bucket_bytes, o.bucket_bytes);
  const auto add = [&](std::size_t number, Count offset) {
    const auto found =
        std::ranges::find(state.own, fmt::format("kept.{}", number), &TrainingState::Own::name);
    if (found == state.own.end()) return;
    const Values kept = widened(found->numbers);
    for (std::size_t i = 0; i < kept.size(); ++i)
      flat[static_cast<std::size_t>(offset) + i] += kept[i];
  };
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const Bucket& bucket = buckets[b];
    add(method == "topk" ? b : 2 * b, bucket.offset);
    if (is_two_phase)
      add(2 * b + 1, bucket.offset + TwoPhaseChunks(bucket.count, state.copies)[state.copy].first);
  }
}

}  // namespace

Values kept_by_all(Communicator& world, TrainingRank& rank, const Plan& plan,
                   const std::vector<Parameter>& whole) {
  const Parameter& last = whole.back();
  Values all(static_cast<std::size_t>(last.offset + last.count));
  for (const TrainingState& state : rank.states()) {
    Values flat(static_cast<std::size_t>(state.parameters->count()));
    add_kept(flat, state, plan);
    for (const Parameter& parameter : state.parameters->list()) {
      const auto found = std::ranges::find(whole, parameter.whole_name(), &Parameter::name);
      for_each_run(parameter.region, found->shape.back(),
                   [&](const Region::Columns& columns, Count in_whole, Count in_part, Count count) {
                     // Ranks with the same gradients keep the same.
                     Count same = 1;
                     for (const Axis axis : model_axes())
                       if (const PlacedAlong along = columns.placement[axis];
                           along.placed == Placed::replicated)
                         same *= along.ranks;
                     for (Count i = 0; i < count && in_whole + i < found->count; ++i)
                       all[static_cast<std::size_t>(found->offset + in_whole + i)] +=
                           flat[static_cast<std::size_t>(parameter.offset + in_part + i)] /
                           static_cast<double>(same);
                   });
    }
  }
  world.set_label(report_label);
  all_reduce(world, host_slice(std::span(all)));
  return all;
}

void write_values(const std::string& path, const Values& values) {
  write_file(path, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
}

Values read_values(const std::string& path, std::size_t count) {
  Values values(count);
  const std::size_t bytes = count * sizeof(double);
  const std::string text = read_text(path, static_cast<std::int64_t>(bytes));
  require(text.size() == bytes, fmt::format("{} has {} bytes, not {}", path, text.size(), bytes));
  std::memcpy(values.data(), text.data(), bytes);
  return values;
}

}  // namespace lockstep
