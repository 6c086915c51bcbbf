#include "parallel/fuzz/rounded_passes.h"

#include "collectives/base/device.h"
#include "models/gpt/weights.h"
#include "parallel/exchange/codec.h"
#include "parallel/sharded/sharding.h"

namespace lockstep {
namespace {

Values decoded(const Codec<double>& codec, const Values& numbers) {
  std::vector<std::byte> wire(static_cast<std::size_t>(codec.bytes(std::ssize(numbers))));
  codec.encode(numbers, codec.scale(numbers), wire.data());
  Values back(numbers.size());
  codec.decode(wire.data(), back);
  return back;
}

// Rounds the shards of a unit in the flat buffer of its parameters.
void round_unit(const Codec<double>& codec, const std::vector<Parameter>& list,
                const UnitParameters& unit, int shards, Values& flat) {
  const ShardLayout layout = unit.layout(shards);
  for (int shard = 0; shard < shards; ++shard) {
    Values chunk(static_cast<std::size_t>(layout.chunk(shard).count));
    const auto for_each = [&](const auto& use) {
      for (const ShardLayout::Piece& piece : layout.pieces(shard)) {
        const Parameter& parameter =
            list[static_cast<std::size_t>(unit.parameters[piece.parameter])];
        for (Count i = 0; i < piece.range.count; ++i)
          use(chunk[static_cast<std::size_t>(piece.in_chunk + i)],
              flat[static_cast<std::size_t>(parameter.offset + piece.range.first + i)]);
      }
    };
    for_each([](double& in_chunk, double value) { in_chunk = value; });
    chunk = decoded(codec, chunk);
    for_each([](double in_chunk, double& value) { value = in_chunk; });
  }
}

}  // namespace

Values rounded_by_gathers(const Plan& plan, const std::vector<Parameter>& whole,
                          const Values& values) {
  const auto codec = make_codec<double>(plan.options.gather);
  Values rounded = values;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const RankOutline outline(plan, rank);
    for (const ParameterSet set : outline.model().sets()) {
      const Parameters& part = outline.parameters(set);
      const RankUnits units = sharded_units(outline.model(), sharding_of(plan, set).value(), set);
      if (units.replicas.shards() == 1) continue;  // they are not gathered
      Values flat(static_cast<std::size_t>(part.count()));
      const auto for_each_run = [&](const auto& use) {
        for_each_counted_run(part, whole,
                             [&](std::size_t number, Count in_whole, Count in_part, Count count) {
                               for (Count i = 0; i < count; ++i)
                                 use(static_cast<std::size_t>(whole[number].offset + in_whole + i),
                                     flat[static_cast<std::size_t>(in_part + i)]);
                             });
      };
      for_each_run([&](std::size_t place, double& own) { own = values[place]; });
      for (const UnitParameters& unit : units.all)
        round_unit(*codec, part.list(), unit, units.replicas.shards(), flat);
      for_each_run([&](std::size_t place, double own) { rounded[place] = own; });
    }
  }
  return rounded;
}

RoundedPasses::RoundedPasses(const Plan& plan, const std::vector<Parameter>& whole,
                             std::span<const std::unique_ptr<TrainingRank>> ranks) {
  if (!plan.compresses_parameters()) return;
  for (const auto& rank : ranks) {
    const Values rounded =
        rounded_by_gathers(plan, whole, gathered(*rank, Gathered::values, whole));
    for (const TrainingState& state : rank->states()) {
      const Slice flat = state.parameters->values();
      Values& wide = saved_.emplace_back(Saved{flat, widened(flat)}).before;
      Values passes = wide;
      for_each_counted_run(
          *state.parameters, whole,
          [&](std::size_t number, Count in_whole, Count in_part, Count count) {
            for (Count i = 0; i < count; ++i)
              passes[static_cast<std::size_t>(in_part + i)] =
                  rounded[static_cast<std::size_t>(whole[number].offset + in_whole + i)];
          });
      host_device().convert(flat, host_slice(std::span(passes)));
    }
  }
}

RoundedPasses::~RoundedPasses() {
  for (Saved& saved : saved_)
    host_device().convert(saved.values, host_slice(std::span(saved.before)));
}

}  // namespace lockstep
