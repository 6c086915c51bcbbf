#include "cli/theory_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

bool is_same(const TheoryRecord& a, const TheoryRecord& b) {
  return a.quantity == b.quantity && a.formula == b.formula && a.expected == b.expected &&
         a.measured == b.measured;
}

// "0-3,6": ranks in order, consecutive ones as a range.
std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < ranks.size(); first = last + 1) {
    for (last = first; last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1;) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[first]);
    if (last > first) text += fmt::format("-{}", ranks[last]);
  }
  constexpr std::size_t widest = 12;
  return text.size() <= widest ? text : fmt::format("{} ranks", ranks.size());
}

}  // namespace

void print_theory(const std::vector<TheoryRecord>& theory) {
  fmt::print("{:<36} {:>12} {:>16} {:>16}  {}\n", "quantity", "ranks", "expected", "measured",
             "closed form");
  std::vector<std::pair<TheoryRecord, std::vector<int>>> lines;
  std::vector<std::string> quantities;
  for (const TheoryRecord& t : theory) {
    if (std::ranges::count(quantities, t.quantity) == 0) quantities.push_back(t.quantity);
    const auto same =
        std::ranges::find_if(lines, [&](const auto& line) { return is_same(line.first, t); });
    if (same == lines.end())
      lines.push_back({t, {t.rank}});
    else
      same->second.push_back(t.rank);
  }
  std::ranges::stable_sort(lines, {}, [&](const auto& line) {
    return std::ranges::find(quantities, line.first.quantity) - quantities.begin();
  });
  for (const auto& [t, ranks] : lines)
    fmt::print("{:<36} {:>12} {:>16.0f} {:>16.0f}  {}{}\n", t.quantity, ranks_text(ranks),
               t.expected, t.measured, t.formula, t.expected == t.measured ? "" : "  DIFFERS");
}

void require_theory_holds(const TrainResult& result) {
  if (theory_holds(result)) return;
  throw Error(
      ErrorKind::wrong_result, "a measured quantity differs from its closed form",
      {.hint = "see the lines marked DIFFERS; this is a bug in the technique or in its theory"});
}

}  // namespace lockstep
