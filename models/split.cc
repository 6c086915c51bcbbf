#include "models/split.h"

#include <fmt/format.h>

#include "collectives/base/error.h"
#include "collectives/base/slice.h"

namespace lockstep {

HeadShare HeadSplit::share(Count heads, Count kv_heads) const {
  require(ranks <= heads, fmt::format("{} heads on {} ranks that divide them", heads, ranks),
          "every rank has at least one head: use fewer ranks");
  const Count sharers = heads / kv_heads;
  if (ranks <= kv_heads) {
    const Parts parts(kv_heads, ranks);
    const Count first = parts.offset(rank), count = parts[rank];
    return {
        .first = first * sharers, .count = count * sharers, .first_kv = first, .kv_count = count};
  }
  const Parts ranks_of(ranks, static_cast<int>(kv_heads));
  int kv = 0;
  while (ranks_of.offset(kv) + ranks_of[kv] <= rank) ++kv;
  const Parts parts(sharers, static_cast<int>(ranks_of[kv]));
  const int place = rank - static_cast<int>(ranks_of.offset(kv));
  return {.first = kv * sharers + parts.offset(place),
          .count = parts[place],
          .first_kv = kv,
          .kv_count = 1};
}

}  // namespace lockstep
