#include "bench/techniques/moe_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "collectives/base/error.h"
#include "models/random.h"

namespace lockstep {

MoeSkew moe_skew(std::string_view name) {
  if (name == "even") return {};
  constexpr std::string_view begin = "zipf:";
  MoeSkew skew{.is_even = false};
  const std::string_view number = name.starts_with(begin) ? name.substr(begin.size()) : "";
  const auto [stop, error] =
      std::from_chars(number.data(), number.data() + number.size(), skew.zipf);
  require(error == std::errc() && stop == number.data() + number.size() && skew.zipf >= 0 &&
              skew.zipf <= 10,
          fmt::format("no skew '{}'", name), "use even, or zipf:Z with Z from 0 to 10");
  return skew;
}

MoeChoices choices_of_rank(const MoeSkew& skew, int rank, int ranks, int experts, int per_token,
                           int tokens, std::uint64_t seed) {
  const auto number = static_cast<std::size_t>(experts);
  MoeChoices choices{std::vector<Count>(number),
                     std::vector<Count>(static_cast<std::size_t>(ranks))};
  std::vector<double> logs(number), keys(number);  // of the weights
  for (std::size_t e = 0; e < number; ++e)
    logs[e] = -skew.zipf * std::log(static_cast<double>(e + 1));
  std::vector<int> chosen(number);
  std::vector<int> last(choices.ranks.size(), -1);  // token with some of its experts there
  for (int t = 0; t < tokens; ++t) {
    std::iota(chosen.begin(), chosen.end(), 0);
    if (skew.is_even) {
      for (int k = 0; k < per_token; ++k)
        chosen[static_cast<std::size_t>(k)] = (t + k * (experts / per_token)) % experts;
    } else {
      // The largest of log(weight) plus a Gumbel number are such a draw: Efraimidis and Spirakis,
      // 2006.
      for (std::size_t e = 0; e < number; ++e)
        keys[e] = logs[e] - std::log(-std::log(random_uniform(
                                seed, rank, Count{t} * experts + static_cast<Count>(e))));
      std::ranges::partial_sort(chosen, chosen.begin() + per_token, std::greater(),
                                [&](int e) { return keys[static_cast<std::size_t>(e)]; });
    }
    for (int k = 0; k < per_token; ++k) {
      const int e = chosen[static_cast<std::size_t>(k)];
      const auto of = static_cast<std::size_t>(e / (experts / ranks));
      ++choices.experts[static_cast<std::size_t>(e)];
      if (last[of] == t) continue;
      last[of] = t;
      ++choices.ranks[of];
    }
  }
  return choices;
}

}  // namespace lockstep
