#include "parallel/expert/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace lockstep {

const std::vector<DispatchMethod>& dispatch_methods() {
  static const std::vector<DispatchMethod> methods = {all_to_all_dispatch(), two_level_dispatch(),
                                                      padded_dispatch(), deduplicated_dispatch(),
                                                      all_gather_dispatch()};
  return methods;
}

const DispatchMethod& dispatch_method(std::string_view name) {
  std::string known;
  for (const DispatchMethod& method : dispatch_methods()) {
    if (method.name == name) return method;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", method.name);
  }
  throw Error(ErrorKind::bad_input, fmt::format("no token dispatcher '{}'", name),
              {.hint = fmt::format("choose one of {}", known)});
}

SentRows sent_choices(const ExpertGroup& group, const Routing& routing) {
  const Count own = group.own_experts();
  SentRows sent{.counts = {},
                .first_own = std::reduce(routing.counts.begin(),
                                         routing.counts.begin() + group.split.rank * own),
                .tokens = routing.tokens,
                .rows = routing.rows,
                .places = routing.rows};
  for (Count rank = 0; rank < group.split.ranks; ++rank) {
    const auto first = routing.counts.begin() + rank * own;
    sent.counts.push_back(std::reduce(first, first + own));
  }
  return sent;
}

void choose_alike(const ExpertGroup& group, const DispatchMethod& method, Routing& routing) {
  if (method.sends_tokens) {
    routing.sent = method.sent(group, routing).counts;
    routing.received.assign(routing.sent.size(), routing.sent[group.split.rank]);
    return;
  }
  const auto ranks = static_cast<std::size_t>(group.split.ranks),
             own = static_cast<std::size_t>(group.own_experts()),
             here = static_cast<std::size_t>(group.split.rank);
  const auto mine = std::span(routing.counts).subspan(here * own, own);
  routing.arriving.clear();
  for (std::size_t rank = 0; rank < ranks; ++rank)
    routing.arriving.insert(routing.arriving.end(), mine.begin(), mine.end());
  // From each rank of the node, for the rank with this place in each node.
  const auto places = static_cast<std::size_t>(std::max(group.ranks_per_node, 1));
  routing.passing.clear();
  for (std::size_t from = 0; from < places; ++from)
    for (std::size_t to = here % places; to < ranks; to += places) {
      const auto of_rank = std::span(routing.counts).subspan(to * own, own);
      routing.passing.push_back(std::reduce(of_rank.begin(), of_rank.end()));
    }
}

namespace {

std::vector<Count> sums_of(const std::vector<Count>& counts, std::size_t neighbours) {
  std::vector<Count> sums(counts.size() / neighbours);
  for (std::size_t i = 0; i < counts.size(); ++i) sums[i / neighbours] += counts[i];
  return sums;
}

}  // namespace

void count_rows(Routing& routing, int ranks) {
  const std::size_t own = routing.counts.size() / static_cast<std::size_t>(ranks);
  routing.sent = sums_of(routing.counts, own);
  routing.received = sums_of(routing.arriving, own);
  routing.received_of_parts = sums_of(routing.arriving_of_parts, own);
}

DispatchedRows dispatched_rows(const Routing& routing) {
  return {.sent = routing.sent, .received = routing.received, .passing = routing.passing};
}

std::vector<DispatchLeg> one_count_each(const ExpertGroup& group) {
  return {{"", (group.split.ranks - 1) * Traffic{1, 1, 1, 1}, "(P-1)", "(P-1)"}};
}

std::vector<Count> in_elements(std::vector<Count> counts, Count columns) {
  for (Count& count : counts) count *= columns;
  return counts;
}

std::optional<double> all_to_all_seconds(const ExpertGroup& group, Count pair_bytes,
                                         const LinkModel& links) {
  return all_to_all_v_pairwise().seconds({.ranks = group.split.ranks,
                                          .count = pair_bytes * group.split.ranks,
                                          .element_bytes = 1,
                                          .ranks_per_node = group.ranks_per_node},
                                         links);
}

}  // namespace lockstep
