#include "collectives/transport/failure/failure_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t most_listed = 16;

// Ranks with the same last operation and state.
struct Alike {
  Signature last;
  RankState::Where where;
  std::vector<int> ranks;
};

// Groups the ranks for which `holds` is true, in the order of their first member.
template <typename Holds>
std::vector<Alike> alike(std::span<const RankState> ranks, Holds holds) {
  std::vector<Alike> groups;
  for (const RankState& state : ranks) {
    if (!holds(state)) continue;
    auto group = std::ranges::find_if(
        groups, [&](const Alike& g) { return g.last == state.last && g.where == state.where; });
    if (group == groups.end())
      group = groups.insert(group, {.last = state.last, .where = state.where, .ranks = {}});
    // A rank with two ends is listed once.
    if (std::ranges::find(group->ranks, state.rank) == group->ranks.end())
      group->ranks.push_back(state.rank);
  }
  return groups;
}

std::string how_late(const Alike& late) {
  const bool entered_none = late.last.sequence < 0;
  switch (late.where) {
    case RankState::Where::inside:
      return fmt::format("still in {}", late.last.text());
    case RankState::Where::ended:
      return entered_none ? "its program ended without any operation"
                          : fmt::format("its program ended after {}", late.last.text());
    default:
      return entered_none ? "it has entered none" : fmt::format("it left {}", late.last.text());
  }
}

std::string_view verb(const Alike& group) {
  const bool one = group.ranks.size() == 1;
  switch (group.where) {
    case RankState::Where::inside:
      return one ? "is in" : "are in";
    case RankState::Where::ended:
      return "ended after";
    default:
      return one ? "has left" : "have left";
  }
}

std::string waits(std::span<const RankState> ranks) {
  std::vector<std::string> pairs;
  std::set<std::pair<int, int>> said;  // with two ends, a rank may wait twice
  for (const RankState& state : ranks) {
    if (state.waits_for < 0 || !said.insert({state.rank, state.waits_for}).second) continue;
    if (pairs.size() == most_listed) {
      pairs.emplace_back("...");
      break;
    }
    const std::string what =
        state.awaited.is_numbered_message() ? fmt::format(" ({})", state.awaited.text()) : "";
    pairs.push_back(fmt::format("rank {} {}for rank {}{}", state.rank,
                                pairs.empty() ? "waits " : "", state.waits_for, what));
  }
  return fmt::format("{}", fmt::join(pairs, ", "));
}

}  // namespace

std::string ranks_text(std::span<const int> ranks) {
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (runs.size() == most_listed) {
      runs.emplace_back("...");
      break;
    }
    runs.push_back(end - i == 1 ? fmt::format("{}", ranks[i])
                                : fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    i = end;
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(runs, ", "));
}

std::string failure_report(std::span<const RankState> ranks) {
  Signature newest;
  for (const RankState& state : ranks)
    if (state.last.sequence > newest.sequence) newest = state.last;
  std::vector<std::string> parts;
  if (newest.sequence >= 0) {
    for (const Alike& late : alike(
             ranks, [&](const RankState& state) { return state.last.sequence < newest.sequence; }))
      parts.push_back(fmt::format("{} never entered {}: {}", ranks_text(late.ranks), newest.text(),
                                  how_late(late)));
    for (const Alike& there : alike(
             ranks, [&](const RankState& state) { return state.last.sequence == newest.sequence; }))
      parts.push_back(
          fmt::format("{} {} {}", ranks_text(there.ranks), verb(there), there.last.text()));
  }
  if (std::string text = waits(ranks); !text.empty()) parts.push_back(std::move(text));
  if (newest.sequence < 0)
    for (const Alike& ended : alike(
             ranks, [](const RankState& state) { return state.where == RankState::Where::ended; }))
      parts.push_back(fmt::format("{} ended", ranks_text(ended.ranks)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace lockstep
