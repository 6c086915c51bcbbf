// What can be said of a stopped world from what each rank did last.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "collectives/transport/transport.h"

namespace lockstep {

// A rank, as the others see it.
struct RankState {
  enum class Where : std::uint8_t { outside, inside, ended };

  int rank = 0;
  Signature last = {};  // the operation it entered last; sequence -1: none yet
  Where where = Where::outside;
  int waits_for = -1;  // a rank, or -1
};

// "rank 1 never entered all_reduce/ring #6 of 1000 f32, sum: it left broadcast #5 ...; ranks 0,
// 2-3 are in all_reduce/ring #6 ...; rank 0 waits for rank 3, rank 2 for rank 1". Who is late comes
// first.
std::string verdict(std::span<const RankState> ranks);

// "rank 3", or "ranks 0, 2-5": ascending ranks, and after the first few runs of them "...".
std::string ranks_text(std::span<const int> ranks);

}  // namespace lockstep
