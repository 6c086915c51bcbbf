#include "bench/results/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/results/measure.h"
#include "bench/results/statistics.h"
#include "collectives/base/error.h"

namespace lockstep {
namespace {

// Repetitions are independent samples; iterations are not quite. With enough repetitions in both
// files, each repetition is one sample.
constexpr std::size_t enough = 5;
// Of fewer samples, even the farthest apart may differ by chance.
constexpr std::size_t fewest = 4;
constexpr std::size_t fewest_to_halve = 2 * fewest;
// Virtual times are differences of larger times, so their last digits may vary.
constexpr double rounding = 1e-9;

void check_same_kind(const Measurements& before, const Measurements& after) {
  const auto refuse = [&](const std::string& what, const std::string& now, const std::string& was) {
    throw Error(
        ErrorKind::bad_input,
        fmt::format("{}: its {} is {}, that of {} is {}", after.path, what, now, before.path, was),
        {.hint = "measure both in the same way"});
  };
  if (before.schema != after.schema) refuse("schema", after.schema, before.schema);
  for (const auto& [key, value] : before.settings)
    if (const auto found = after.settings.find(key);
        found != after.settings.end() && found->second != value)
      refuse(key, found->second, value);
}

// The samples of the rows that both files hold; of the others, their repetitions.
std::pair<Samples, Samples> samples_of(const Measurements& before, const Measurements& after) {
  Samples old_samples, new_samples;
  int shared = 0;
  for (const auto& [name, row] : before.rows) {
    const auto found = after.rows.find(name);
    const bool is_shared = found != after.rows.end();
    shared += is_shared;
    const bool by_iteration =
        is_shared && std::min(row.repetitions.size(), found->second.repetitions.size()) < enough &&
        !row.iterations.empty() && !found->second.iterations.empty();
    old_samples[name] = by_iteration ? row.iterations : row.repetitions;
    if (is_shared)
      new_samples[name] = by_iteration ? found->second.iterations : found->second.repetitions;
  }
  for (const auto& [name, row] : after.rows) new_samples.try_emplace(name, row.repetitions);
  if (shared > 0) return {old_samples, new_samples};
  throw Error(
      ErrorKind::bad_input,
      fmt::format("none of the {} rows of {} is among the {} of {}: one has {}, the other {}",
                  after.rows.size(), after.path, before.rows.size(), before.path,
                  after.rows.begin()->first, before.rows.begin()->first),
      {.hint = "measure the same operation, algorithms, transport, ranks, sizes and types"});
}

Verdict exact_verdict(const ComparedRow& row) {
  if (std::abs(row.change()) <= rounding) return Verdict::same;
  return row.change() > 0 ? Verdict::slower : Verdict::faster;
}

// Rows of both files with their medians, then those of one.
std::vector<ComparedRow> paired(const Samples& before, const Samples& after) {
  std::vector<ComparedRow> rows;
  for (const auto& [name, samples] : before) {
    ComparedRow& row = rows.emplace_back();
    row.name = name;
    row.old_median = percentile(samples, 0.5);
    const auto found = after.find(name);
    if (found == after.end())
      row.verdict = Verdict::only_old;
    else
      row.new_median = percentile(found->second, 0.5);
  }
  for (const auto& [name, samples] : after)
    if (!before.contains(name)) {
      ComparedRow& row = rows.emplace_back();
      row.name = name;
      row.new_median = percentile(samples, 0.5);
      row.verdict = Verdict::only_new;
    }
  return rows;
}

// What the samples of a row tell: all of them, or the faster halves if that makes the interval less
// than two thirds as wide.
struct Tests {
  double chance;  // that both results are of one distribution, two-sided
  RatioInterval interval;
  bool of_faster_half;
};

Tests tests_of(const std::vector<double>& was, const std::vector<double>& now, bool in_turn) {
  auto [before, after] = in_turn ? pairs_of(was, now) : std::pair(all_of(was), all_of(now));
  RatioInterval interval = ratio_interval(before, after);
  bool of_faster_half = false;
  if (!in_turn && std::min(was.size(), now.size()) >= fewest_to_halve) {
    SampleSet fast_before = faster_half(before), fast_after = faster_half(after);
    const RatioInterval fast = ratio_interval(fast_before, fast_after);
    if (std::log(fast.most / fast.least) < std::log(interval.most / interval.least) * 2 / 3) {
      before = std::move(fast_before), after = std::move(fast_after);
      interval = fast;
      of_faster_half = true;
    }
  }
  const double either =
      std::min(chance_of_being_larger(before, after), chance_of_being_larger(after, before));
  return {std::min(1.0, 2 * either), interval, of_faster_half};
}

bool is_in_both(const ComparedRow& row) {
  return row.verdict != Verdict::only_old && row.verdict != Verdict::only_new;
}

std::string percent(double share) {
  return share < 10 ? fmt::format("{:.1f} %", share * 100) : fmt::format("{:.0f} times", share + 1);
}

std::string verdict_text(const ComparedRow& row) {
  std::string text(name_of(row.verdict));
  if (row.verdict == Verdict::unclear) text += ", within " + percent(row.within);
  if (row.only_faster_half) text += " in the faster half of the samples";
  if (!row.chosen.empty()) text += "; auto chose " + row.chosen;
  return text;
}

// The columns old, new, change and q.
struct Cells {
  std::string before, after, change, rate;
};

Cells cells_of(const ComparedRow& row) {
  const auto time = [](double us, bool is_there) {
    return is_there ? fmt::format("{:.2f}", us) : std::string("-");
  };
  constexpr double shown = 0.0005;  // smaller changes would be printed as 0
  const double change = row.change();
  const std::string text = change == 0 || std::abs(change) >= shown
                               ? fmt::format("{:+.1f} %", change * 100)
                               : fmt::format("{:+.0e} %", change * 100);
  return {time(row.old_median, row.verdict != Verdict::only_new),
          time(row.new_median, row.verdict != Verdict::only_old), is_in_both(row) ? text : "-",
          row.rate ? fmt::format("{:.2g}", *row.rate) : "-"};
}

// What a comparison says before its rows.
std::vector<std::string> remarks_of(const Comparison& comparison) {
  std::vector<std::string> remarks;
  for (const auto& [weight, text] : comparison.differences)
    remarks.push_back((weight == Weight::note ? "note: " : "warning: the environments differ: ") +
                      text);
  if (std::ranges::count(comparison.differences, Weight::hardware, &Difference::weight) > 0)
    remarks.emplace_back("warning: the hardware differs, so no row is called the same");
  if (comparison.is_exact)
    remarks.emplace_back("note: virtual time: rows are compared exactly, --effect has no effect");
  else if (comparison.in_turn)
    remarks.emplace_back("note: measured in turn: samples are compared in pairs");
  return remarks;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::same:
      return "same";
    case Verdict::slower:
      return "SLOWER";
    case Verdict::faster:
      return "faster";
    case Verdict::unclear:
      return "unclear";
    case Verdict::too_few_samples:
      return "too few samples";
    case Verdict::only_old:
      return "gone";
    case Verdict::only_new:
      return "new";
  }
  return "";
}

int Comparison::count(Verdict verdict) const {
  return static_cast<int>(std::ranges::count(rows, verdict, &ComparedRow::verdict));
}

int Comparison::count_environment() const {
  return static_cast<int>(std::ranges::count_if(
      differences, [](const Difference& d) { return d.weight != Weight::note; }));
}

std::vector<ComparedRow> compare_samples(const Samples& before, const Samples& after,
                                         const CompareLimits& limits, bool in_turn) {
  std::vector<ComparedRow> rows = paired(before, after);
  std::vector<ComparedRow*> tested;
  std::vector<double> chances;
  std::vector<Tests> tests;
  for (ComparedRow& row : rows) {
    if (!is_in_both(row)) continue;
    const std::vector<double>&was = before.at(row.name), &now = after.at(row.name);
    if (std::min(was.size(), now.size()) < fewest) {
      row.verdict = Verdict::too_few_samples;
      continue;
    }
    tested.push_back(&row);
    chances.push_back(
        tests.emplace_back(tests_of(was, now, in_turn && was.size() == now.size())).chance);
  }
  const auto rates = false_discovery_rates(chances);
  for (std::size_t i = 0; i < tested.size(); ++i) {
    ComparedRow& row = *tested[i];
    const auto [least, most] = tests[i].interval;
    row.rate = rates[i];
    row.within = std::max(std::abs(least - 1), std::abs(most - 1));
    const bool is_different = rates[i] <= limits.rate;
    if (is_different && least >= 1 + limits.effect)
      row.verdict = Verdict::slower;
    else if (is_different && most <= 1 - limits.effect)
      row.verdict = Verdict::faster;
    else if (row.within >= limits.effect)
      row.verdict = Verdict::unclear;
    else
      row.only_faster_half = tests[i].of_faster_half && std::abs(row.change()) >= limits.effect;
  }
  return rows;
}

Comparison compare(const Measurements& before, const Measurements& after,
                   const CompareLimits& limits) {
  check_same_kind(before, after);
  const auto [old_samples, new_samples] = samples_of(before, after);
  Comparison result{.differences = differences(before, after),
                    .rows = {},
                    .is_exact = before.is_exact && after.is_exact,
                    .in_turn = !before.in_turn.empty() && before.in_turn == after.in_turn};
  result.rows = result.is_exact ? paired(old_samples, new_samples)
                                : compare_samples(old_samples, new_samples, limits, result.in_turn);
  const bool other_hardware =
      std::ranges::count(result.differences, Weight::hardware, &Difference::weight) > 0;
  for (ComparedRow& row : result.rows) {
    if (!is_in_both(row)) continue;
    if (result.is_exact) row.verdict = exact_verdict(row);
    if (other_hardware && row.verdict == Verdict::same) {
      row.verdict = Verdict::unclear;
      row.only_faster_half = false;
    }
    const std::string &was = before.rows.at(row.name).chosen, &now = after.rows.at(row.name).chosen;
    if (was != now) row.chosen = fmt::format("{} before, {} now", was, now);
  }
  return result;
}

std::string text_of(const Comparison& comparison) {
  std::string text;
  for (const std::string& remark : remarks_of(comparison)) text += fmt::format("# {}\n", remark);
  std::size_t widest = 12;
  for (const ComparedRow& row : comparison.rows) widest = std::max(widest, row.name.size());
  text += fmt::format("{:<{}}{:>12}{:>12}{:>11}{:>10}  {}\n", "measurement", widest, "old (us)",
                      "new (us)", "change", "q", "verdict");
  for (const ComparedRow& row : comparison.rows) {
    const Cells cells = cells_of(row);
    text += fmt::format("{:<{}}{:>12}{:>12}{:>11}{:>10}  {}\n", row.name, widest, cells.before,
                        cells.after, cells.change, cells.rate, verdict_text(row));
  }
  const auto of = [&](Verdict verdict) { return comparison.count(verdict); };
  text += fmt::format("{} slower, {} faster, {} the same, {} unclear, of {}\n", of(Verdict::slower),
                      of(Verdict::faster), of(Verdict::same),
                      of(Verdict::unclear) + of(Verdict::too_few_samples), comparison.rows.size());
  if (const int missing = of(Verdict::only_old) + of(Verdict::only_new); missing > 0)
    text += fmt::format("{} of these are only in one of the files\n", missing);
  return text;
}

std::string markdown_of(const Comparison& comparison) {
  std::string text =
      "| measurement | old (us) | new (us) | change | q | verdict |\n|---|---|---|---|---|---|\n";
  for (const ComparedRow& row : comparison.rows) {
    const Cells cells = cells_of(row);
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", row.name, cells.before, cells.after,
                        cells.change, cells.rate, verdict_text(row));
  }
  for (const std::string& remark : remarks_of(comparison)) text += fmt::format("\n{}\n", remark);
  return text;
}

}  // namespace lockstep
