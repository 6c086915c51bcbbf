// Which experts the tokens of a rank choose in the benchmark of dispatchers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/dtype.h"

namespace lockstep {

// even: choice k of token t is expert t + k (E / K), so that all experts have equally many if E divides
// the tokens. zipf:Z: tokens draw their experts as models/zipf_experts.h says, each rank from a stream of
// its own.
struct MoeSkew {
  bool is_even = true;
  double zipf = 0;
};
// Throws Error (bad_input).
MoeSkew moe_skew(std::string_view name);

struct MoeChoices {
  std::vector<Count> experts;        // [E], choices of each
  std::vector<Count> ranks;          // [P], tokens with some of their experts there
  std::vector<std::int32_t> chosen;  // [tokens, K]
};
MoeChoices choices_of_rank(const MoeSkew& skew, int rank, int ranks, int experts, int per_token,
                           int tokens, std::uint64_t seed);

}  // namespace lockstep
