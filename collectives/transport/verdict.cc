#include "collectives/transport/verdict.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::size_t most_listed = 16;

// The ranks of which `holds`.
template <typename Holds>
std::vector<int> ranks_where(std::span<const RankState> ranks, Holds holds) {
  std::vector<int> found;
  for (const RankState& state : ranks)
    if (holds(state)) found.push_back(state.rank);
  return found;
}

std::string last_act(const RankState& state) {
  const std::string last = state.last.sequence < 0 ? "its first operation" : state.last.text();
  switch (state.where) {
    case RankState::Where::inside:
      return fmt::format("still in {}", last);
    case RankState::Where::ended:
      return state.last.sequence < 0 ? "its program ended without an operation"
                                     : fmt::format("its program ended after {}", last);
    default:
      return state.last.sequence < 0 ? "it has entered none" : fmt::format("it left {}", last);
  }
}

// Ranks that did the same, once: "rank 1 never entered #6: it left broadcast #5".
std::vector<std::string> late_ranks(std::span<const RankState> ranks, const Signature& newest) {
  std::vector<std::string> lines;
  std::vector<std::string> said;
  for (const RankState& state : ranks) {
    if (state.last.sequence >= newest.sequence) continue;
    const std::string act = last_act(state);
    if (std::ranges::find(said, act) != said.end()) continue;
    said.push_back(act);
    const auto same = ranks_where(ranks, [&](const RankState& other) {
      return other.last.sequence < newest.sequence && last_act(other) == act;
    });
    lines.push_back(fmt::format("{} never entered {}: {}", ranks_text(same), newest.text(), act));
  }
  return lines;
}

// Who is where at the newest operation: a line for each thing that ranks do there.
std::vector<std::string> newest_ranks(std::span<const RankState> ranks, std::int64_t newest) {
  std::vector<std::string> lines;
  for (const RankState& state : ranks) {
    if (state.last.sequence != newest) continue;
    const auto same = ranks_where(ranks, [&](const RankState& other) {
      return other.last == state.last && other.where == state.where;
    });
    if (same.front() != state.rank) continue;
    const bool one = same.size() == 1;
    const auto verb = [&] {
      switch (state.where) {
        case RankState::Where::inside:
          return one ? "is in" : "are in";
        case RankState::Where::ended:
          return "ended after";
        default:
          return one ? "has left" : "have left";
      }
    };
    lines.push_back(fmt::format("{} {} {}", ranks_text(same), verb(), state.last.text()));
  }
  return lines;
}

std::string waits(std::span<const RankState> ranks) {
  std::vector<std::string> pairs;
  for (const RankState& state : ranks) {
    if (state.waits_for < 0) continue;
    if (pairs.size() == most_listed) {
      pairs.emplace_back("...");
      break;
    }
    pairs.push_back(fmt::format("rank {} {}for rank {}", state.rank, pairs.empty() ? "waits " : "",
                                state.waits_for));
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

std::string verdict(std::span<const RankState> ranks) {
  const auto newest = std::ranges::max_element(
      ranks, {}, [](const RankState& state) { return state.last.sequence; });
  std::vector<std::string> parts;
  if (newest != ranks.end() && newest->last.sequence >= 0) {
    parts = late_ranks(ranks, newest->last);
    std::ranges::move(newest_ranks(ranks, newest->last.sequence), std::back_inserter(parts));
  }
  if (std::string text = waits(ranks); !text.empty()) parts.push_back(std::move(text));
  const auto ended = ranks_where(ranks, [](const RankState& state) {
    return state.where == RankState::Where::ended && state.last.sequence < 0;
  });
  if (parts.size() <= 1 && !ended.empty())
    parts.push_back(fmt::format("{} ended", ranks_text(ended)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace lockstep
