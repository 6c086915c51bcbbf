#include "bench/pairs/rounds.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep {
namespace {

int circle_rounds(std::size_t ranks) {
  const int even = static_cast<int>(ranks + ranks % 2);
  return even - 1;
}

// One round of the circle method. The last of an even number of places stands still, the others
// move around it; with an odd number of ranks, whoever meets the empty place rests.
std::vector<RankPair> circle_round(const std::vector<int>& ranks, int round) {
  const int around = circle_rounds(ranks.size()), still = around;
  std::vector<RankPair> pairs;
  const auto add = [&](int a, int b) {
    const auto [low, high] = std::minmax(a, b);
    if (high >= std::ssize(ranks)) return;
    const auto rank = [&](int place) { return ranks[static_cast<std::size_t>(place)]; };
    pairs.push_back({.first = rank(low), .second = rank(high)});
  };
  add(round, still);
  for (int k = 1; k <= around / 2; ++k) add((round + k) % around, (round + around - k) % around);
  std::ranges::sort(pairs);
  return pairs;
}

}  // namespace

std::vector<LinkGroup> link_groups(std::span<const int> host_of_rank) {
  std::map<int, std::vector<int>> hosts;
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank)
    hosts[host_of_rank[rank]].push_back(static_cast<int>(rank));
  std::vector<LinkGroup> groups;
  std::vector<LinkGroup> rails;
  for (const auto& [host, ranks] : hosts) {
    groups.push_back({.ranks = ranks, .is_one_host = true});
    if (ranks.size() > rails.size()) rails.resize(ranks.size());
    for (std::size_t place = 0; place < ranks.size(); ++place)
      rails[place].ranks.push_back(ranks[place]);
  }
  for (LinkGroup& rail : rails) {
    std::ranges::sort(rail.ranks);
    groups.push_back(std::move(rail));
  }
  std::erase_if(groups, [](const LinkGroup& group) { return group.ranks.size() < 2; });
  return groups;
}

int most_rounds(std::span<const LinkGroup> groups) {
  int most = 0;
  for (const LinkGroup& group : groups) most = std::max(most, circle_rounds(group.ranks.size()));
  return most;
}

std::vector<Round> rounds_of(std::span<const LinkGroup> groups, int most, int first) {
  std::vector<Round> inside, between;
  for (std::size_t number = 0; number < groups.size(); ++number) {
    const LinkGroup& group = groups[number];
    const int all = circle_rounds(group.ranks.size());
    const int chosen = most > 0 ? std::min(most, all) : all;
    for (int i = 0; i < chosen; ++i) {
      // Hosts do not share ports with each other's inside; rails share those of their hosts.
      std::vector<Round>& rounds = group.is_one_host ? inside : between;
      const std::size_t place = group.is_one_host ? static_cast<std::size_t>(i) : rounds.size();
      if (place >= rounds.size()) rounds.resize(place + 1);
      for (const RankPair& pair : circle_round(group.ranks, (i * all / chosen + first) % all))
        rounds[place].push_back({.ranks = pair, .group = static_cast<int>(number)});
    }
  }
  inside.insert(inside.end(), between.begin(), between.end());
  return inside;
}

}  // namespace lockstep
