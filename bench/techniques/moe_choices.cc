#include "bench/techniques/moe_choices.h"

#include <fmt/format.h>

#include "collectives/base/error.h"
#include "models/zipf_experts.h"

namespace lockstep {

MoeSkew moe_skew(std::string_view name) {
  if (name == "even") return {};
  const std::optional<double> zipf = zipf_exponent(name);
  require(zipf.has_value(), fmt::format("no skew '{}'", name),
          "use even, or zipf:Z with Z from 0 to 10");
  return {.is_even = false, .zipf = *zipf};
}

MoeChoices choices_of_rank(const MoeSkew& skew, int rank, int ranks, int experts, int per_token,
                           int tokens, std::uint64_t seed) {
  MoeChoices choices{.experts = std::vector<Count>(static_cast<std::size_t>(experts)),
                     .ranks = std::vector<Count>(static_cast<std::size_t>(ranks)),
                     .chosen = {}};
  ZipfExperts zipf(skew.zipf, experts, per_token, seed);
  std::vector<std::int32_t> evenly(static_cast<std::size_t>(per_token));
  std::vector<int> last(choices.ranks.size(), -1);  // token with some of its experts there
  for (int t = 0; t < tokens; ++t) {
    for (int k = 0; k < per_token; ++k)
      evenly[static_cast<std::size_t>(k)] = (t + k * (experts / per_token)) % experts;
    for (const std::int32_t e :
         skew.is_even ? std::span<const std::int32_t>(evenly) : zipf.draw(rank, t)) {
      const auto of = static_cast<std::size_t>(e / (experts / ranks));
      ++choices.experts[static_cast<std::size_t>(e)];
      choices.chosen.push_back(e);
      if (last[of] == t) continue;
      last[of] = t;
      ++choices.ranks[of];
    }
  }
  return choices;
}

}  // namespace lockstep
