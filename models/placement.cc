#include "models/placement.h"

#include <vector>

namespace lockstep {
namespace {

template <typename Keep>
std::vector<Axis> axes_where(Keep keep) {
  std::vector<Axis> kept;
  for (std::size_t i = 0; i < axis_table().size(); ++i)
    if (keep(axis_table()[i].divides)) kept.push_back(Axis{static_cast<std::uint8_t>(i)});
  return kept;
}

bool divides_model(Divides what) { return what == Divides::layers || what == Divides::stages; }

}  // namespace

std::span<const AxisEntry> axis_table() {
  using enum Divides;
  static constexpr AxisEntry entries[] = {
      {"tp", "tensor parallel", "ranks that split every layer", layers},
      {"cp", "context parallel", "ranks that share the tokens of every sequence", tokens},
      {"pp", "pipeline", "ranks of a pipeline", stages},
      {"dp", "data parallel", "replicas of the model", sequences},
  };
  static_assert(std::size(entries) <= most_axes);
  return entries;
}

const AxisEntry& entry_of(Axis axis) { return axis_table()[static_cast<std::size_t>(axis)]; }

std::span<const Axis> axes() {
  static const std::vector<Axis> all = axes_where([](Divides) { return true; });
  return all;
}

std::span<const Axis> replica_axes() {
  static const std::vector<Axis> all =
      axes_where([](Divides what) { return !divides_model(what); });
  return all;
}

std::span<const Axis> sequence_axes() {
  static const std::vector<Axis> all =
      axes_where([](Divides what) { return what == Divides::sequences; });
  return all;
}

std::span<const Axis> model_axes() {
  static const std::vector<Axis> all = axes_where(divides_model);
  return all;
}

std::string_view name_of(Placed placed) {
  constexpr std::string_view names[] = {"sharded", "replicated", "partial"};
  return names[static_cast<std::size_t>(placed)];
}

RankPlace place_in_split(const LayerSplit& split) {
  RankPlace at;
  at.place[Axis::tp] = split.rank;
  if (split.ranks > 1)
    at.undivided[Axis::tp] = {split.by_sequence ? Placed::partial : Placed::replicated,
                              split.ranks};
  return at;
}

}  // namespace lockstep
