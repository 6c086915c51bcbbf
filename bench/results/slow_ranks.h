// Names the ranks whose own time is much longer than that of the ranks with the same work, and the
// share of all waiting that they explain. Ranks that explain less than a fifth are not named. Used
// for benchmarks of collectives and for training runs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/results/outliers.h"
#include "collectives/base/rank_site.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {

struct RankTime {
  int rank = 0;
  RankSite site;
  int kind = 0;       // ranks of one kind do the same work; only they are compared
  MeasuredTime own;   // without waiting for other ranks
  double waited = 0;  // in the same time
};

struct SlowRanks {
  std::vector<RankTime> ranks;
  std::vector<Outlier> outliers;  // of `ranks`, the slowest first
  std::size_t compared = 0;       // ranks that have at least two others of their kind
  double explained = 0;           // share of all waiting

  // A cause explains most of the wait.
  bool are_cause() const { return explained >= share_of_cause; }
};

// Own times are means of `samples` steps or iterations. Under the clock `unit` nothing disturbs them.
SlowRanks slow_ranks(std::vector<RankTime> ranks, Clock clock, double samples);

// "slow: rank 2 (host a, device cuda:1) with 3.00 times the median own time of 4 ranks; it explains
// 96 % of all waiting: the cause"; empty if no rank is slow.
std::string text_of(const SlowRanks& slow);
// {"compared": 4, "ranks": [{"rank": 2, ...}], "explained_share": 0.96, "is_cause": true}
nlohmann::ordered_json json_of(const SlowRanks& slow);

}  // namespace lockstep
