// Describes a stopped world from the last operation of each rank.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "collectives/transport/transport.h"

namespace lockstep {

// A rank as the others see it.
struct RankState {
  enum class Where : std::uint8_t { outside, inside, ended };

  int rank = 0;
  Signature last = {};  // the last operation it entered; sequence -1: none yet
  Where where = Where::outside;
  int waits_for = -1;      // a rank, or -1
  Signature awaited = {};  // the message it waits for, if that is numbered
};

// "rank 1 never entered all_reduce/ring #6 of 1000 f32, sum: it left broadcast #5 ...; ranks 0,
// 2-3 are in all_reduce/ring #6 ...; rank 0 waits for rank 3, rank 2 for rank 1". Late ranks come
// first.
std::string failure_report(std::span<const RankState> ranks);

// "rank 3", or "ranks 0, 2-5": ascending ranks, with "..." after the first few ranges.
std::string ranks_text(std::span<const int> ranks);

}  // namespace lockstep
