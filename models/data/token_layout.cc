#include "models/data/token_layout.h"

#include <fmt/format.h>

#include "collectives/base/error.h"

namespace lockstep {

Positions TokenLayout::positions(Count length) const {
  require(length % sharers() == 0,
          fmt::format("sequences of {} tokens on {} context-parallel ranks", length, sharers()),
          "--sequence-length must be a multiple of the ranks");
  return positions_of_group(length).part(part, parts);
}

Positions TokenLayout::positions_of_group(Count length) const {
  if (order == TokenOrder::whole) return Positions::all(length);
  const Count chunks = order == TokenOrder::zig_zag ? 2 * ranks : ranks, size = length / chunks;
  require(length % chunks == 0,
          fmt::format("sequences of {} tokens on {} context-parallel ranks", length, ranks),
          fmt::format("--sequence-length must be a multiple of {}", chunks));
  const auto chunk = [&](Count i) { return PositionRange{.first = i * size, .count = size}; };
  switch (order) {
    case TokenOrder::contiguous:
      return {{chunk(rank), {}}};
    case TokenOrder::zig_zag:
      return {{chunk(rank), chunk(chunks - 1 - rank)}};
    default:
      return {{{.first = rank, .count = size, .stride = ranks}, {}}};
  }
}

}  // namespace lockstep
