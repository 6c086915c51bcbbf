#include "models/placement.h"

namespace lockstep {

std::string_view name_of(Axis axis) {
  constexpr std::string_view names[] = {"tp", "cp", "dp", "pp"};
  return names[static_cast<std::size_t>(axis)];
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
