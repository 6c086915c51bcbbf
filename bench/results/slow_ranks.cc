#include "bench/results/slow_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

namespace lockstep {

SlowRanks slow_ranks(std::vector<RankTime> ranks, Clock clock, double samples) {
  // Longer than a system lets a process wait for its turn on a shared core.
  constexpr double long_seconds = 0.1;
  const OutlierRule rule{.long_seconds = clock == Clock::unit ? 0 : long_seconds / samples};
  SlowRanks slow{.ranks = std::move(ranks)};
  std::map<int, std::vector<std::size_t>> kinds;
  std::vector<MeasuredTime> all;
  double waited = 0;
  for (const RankTime& each : slow.ranks) {
    kinds[each.kind].push_back(all.size());
    all.push_back(each.own);
    waited += each.waited;
  }
  for (const auto& [kind, members] : kinds) {
    if (members.size() < fewest_compared) continue;
    slow.compared += members.size();
    std::vector<MeasuredTime> own;
    for (const std::size_t member : members) own.push_back(all[member]);
    for (Outlier outlier : find_outliers(own, rule)) {
      outlier.index = members[outlier.index];
      slow.outliers.push_back(outlier);
    }
  }
  std::ranges::stable_sort(slow.outliers, std::ranges::greater{}, &Outlier::seconds);
  slow.explained = explained_share(all, slow.outliers, waited);
  // Next to long waits for other reasons, own times differ by what nobody notices.
  constexpr double least_explained = 0.2;
  if (slow.explained < least_explained) {
    slow.outliers.clear();
    slow.explained = 0;
  }
  return slow;
}

std::string text_of(const SlowRanks& slow) {
  if (slow.outliers.empty()) return "";
  std::vector<std::string> named;
  for (const Outlier& outlier : slow.outliers) {
    const RankTime& rank = slow.ranks[outlier.index];
    named.push_back(fmt::format("rank {} (host {}, device {}) with {:.2f} times", rank.rank,
                                rank.site.host, rank.site.device,
                                outlier.seconds / outlier.median));
  }
  return fmt::format("slow: {} the median own time of {} ranks; {} {:.0f} % of all waiting{}",
                     fmt::join(named, ", "), slow.compared,
                     named.size() == 1 ? "it explains" : "together they explain",
                     100 * slow.explained, slow.are_cause() ? ": the cause" : "");
}

nlohmann::ordered_json json_of(const SlowRanks& slow) {
  nlohmann::ordered_json json = {{"compared", slow.compared},
                                 {"ranks", nlohmann::ordered_json::array()}};
  for (const Outlier& outlier : slow.outliers) {
    const RankTime& rank = slow.ranks[outlier.index];
    json["ranks"].push_back({{"rank", rank.rank},
                             {"host", rank.site.host},
                             {"device", rank.site.device},
                             {"own", outlier.seconds},
                             {"median", outlier.median}});
    if (std::isfinite(outlier.score)) json["ranks"].back()["score"] = outlier.score;
  }
  json["explained_share"] = slow.explained;
  json["is_cause"] = slow.are_cause();
  return json;
}

}  // namespace lockstep
