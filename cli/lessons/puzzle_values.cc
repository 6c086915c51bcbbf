#include "cli/lessons/puzzle_values.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "bench/collectives/contributions.h"

namespace lockstep {
namespace {

int puzzle_value(const FormulaValues& x, std::string_view name) {
  return static_cast<int>(x.find(name)->second);
}

const Contributions& ring_run(int ranks) {
  static std::map<int, Contributions> runs;
  if (const auto found = runs.find(ranks); found != runs.end()) return found->second;
  ContributionOptions options;
  options.operation = "reduce_scatter";
  options.algorithm = "ring";
  options.ranks = ranks;
  return runs.emplace(ranks, run_contributions(options)).first->second;
}

}  // namespace

OptionalValues ring_trip_values(const FormulaValues& x) {
  const int ranks = puzzle_value(x, "ranks"), rank = puzzle_value(x, "rank") % ranks,
            chunk = puzzle_value(x, "chunk") % ranks,
            message = std::min(puzzle_value(x, "message"), ranks - 1);
  const Contributions& run = ring_run(ranks);
  const auto held_by = [&](int of, int after) -> const HeldData& {
    return run.ranks.at(static_cast<std::size_t>(of)).at(static_cast<std::size_t>(after));
  };
  const std::int64_t element = held_by(rank, message).elements.at(static_cast<std::size_t>(chunk));
  double bits = 0, count = 0;
  for (int source = 0; source < ranks; ++source)
    if (times_held(element, source) > 0) {
      bits += static_cast<double>(1 << source);
      ++count;
    }
  std::optional<double> leaving;
  if (message < ranks - 1)
    leaving = static_cast<double>(held_by((rank + 1) % ranks, message + 1).first);
  return {bits, count, leaving};
}

OptionalValues waiting_sends_values(const FormulaValues& x) {
  const int ranks = puzzle_value(x, "ranks"), order = puzzle_value(x, "order");
  std::vector<int> done(static_cast<std::size_t>(ranks), 0);  // of each rank's two calls
  const auto sends_next = [&](int rank) {
    const bool sends_first = (order >> rank & 1) != 0;
    const int calls = done[static_cast<std::size_t>(rank)];
    return calls < 2 && (calls == 0) == sends_first;
  };
  const auto receives_next = [&](int rank) {
    return done[static_cast<std::size_t>(rank)] < 2 && !sends_next(rank);
  };
  int rounds = 0;
  for (int sent = 0; sent < ranks; ++rounds) {
    std::vector<int> senders;
    for (int rank = 0; rank < ranks; ++rank)
      if (sends_next(rank) && receives_next((rank + 1) % ranks)) senders.push_back(rank);
    if (senders.empty()) return {std::nullopt};
    for (const int rank : senders) {
      ++done[static_cast<std::size_t>(rank)];
      ++done[static_cast<std::size_t>((rank + 1) % ranks)];
    }
    sent += static_cast<int>(senders.size());
  }
  return {rounds};
}

}  // namespace lockstep
