#include "bench/techniques/trained_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep {

using nlohmann::ordered_json;

void add_trained_ranks(ordered_json& file,
                       const std::vector<std::pair<std::string, const SlowRanks*>>& entries) {
  const SlowRanks* last = nullptr;
  for (const auto& [name, trained] : entries) {
    if (trained->ranks.empty()) continue;
    if (!last || trained->ranks.size() >= last->ranks.size()) last = trained;
    // Servers of parameters take no steps of their own: they are null.
    const auto ranks =
        static_cast<std::size_t>(std::ranges::max(trained->ranks, {}, &RankTime::rank).rank + 1);
    const std::vector<ordered_json> unknown(ranks);
    ordered_json times = {{"name", name},
                          {"late_us", unknown},
                          {"duration_us", unknown},
                          {"own_us", unknown},
                          {"waited_us", unknown}};
    for (const RankTime& rank : trained->ranks) {
      const auto place = static_cast<std::size_t>(rank.rank);
      times["own_us"][place] = rank.own.seconds * 1e6;
      times["waited_us"][place] = rank.waited * 1e6;
      times["duration_us"][place] = (rank.own.seconds + rank.waited) * 1e6;
    }
    file["rank_times"].push_back(std::move(times));
  }
  if (!last) return;
  for (const RankTime& rank : last->ranks)
    file["ranks"].push_back(
        {{"rank", rank.rank}, {"host", rank.site.host}, {"device", rank.site.device}});
  if (last->compared > 0) file["slow_ranks"] = json_of(*last);
}

void print_slow(const SlowRanks& trained) {
  if (const std::string text = text_of(trained); !text.empty()) fmt::print("# {}\n", text);
}

}  // namespace lockstep
