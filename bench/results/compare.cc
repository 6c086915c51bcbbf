#include "bench/results/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/results/change_points.h"
#include "bench/results/measure.h"
#include "bench/results/statistics.h"
#include "collectives/base/error.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

// Repetitions are independent samples; iterations are not quite. With enough repetitions in both
// files, each repetition is one sample.
constexpr std::size_t enough = 5;
// With fewer samples, even the farthest apart may differ by chance.
constexpr std::size_t fewest = 4;
constexpr std::size_t fewest_to_halve = 2 * fewest;

void require_same_kind(const Measurements& before, const Measurements& after) {
  const auto refuse = [&](const std::string& what, const std::string& now, const std::string& was) {
    throw Error(ErrorKind::bad_input,
                fmt::format("{} has {} {}, but {} has {}", after.path, what, now, before.path, was),
                {.hint = "measure both in the same way"});
  };
  if (before.schema != after.schema) refuse("schema", after.schema, before.schema);
  for (const auto& [key, value] : before.settings)
    if (const auto found = after.settings.find(key);
        found != after.settings.end() && found->second != value)
      refuse(key, found->second, value);
}

// Returns the samples of rows that both files hold; for other rows, their repetitions.
std::pair<Samples, Samples> samples_of(const Measurements& before, const Measurements& after) {
  Samples old_samples, new_samples;
  for (const auto& [name, row] : before.rows) {
    const auto found = after.rows.find(name);
    const bool is_shared = found != after.rows.end();
    const bool by_iteration =
        is_shared && std::min(row.repetitions.size(), found->second.repetitions.size()) < enough &&
        !row.iterations.empty() && !found->second.iterations.empty();
    old_samples[name] = by_iteration ? row.iterations : row.repetitions;
    if (is_shared)
      new_samples[name] = by_iteration ? found->second.iterations : found->second.repetitions;
  }
  for (const auto& [name, row] : after.rows) new_samples.try_emplace(name, row.repetitions);
  return {old_samples, new_samples};
}

Verdict exact_verdict(const ComparedRow& row) {
  if (std::abs(row.change()) <= virtual_time_rounding) return Verdict::same;
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

// The statistics of a row's samples: all of them, or the faster halves if that makes the interval
// less than two thirds as wide.
struct Tests {
  double chance;  // that both results come from one distribution, two-sided
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

// Adds the wrong results in a file. Their times would be those of a different computation.
void mark_wrong(const Measurements& measurements, Comparison& comparison) {
  for (const auto& [name, fault] : measurements.wrong) {
    comparison.wrong.push_back(
        fmt::format("WRONG: {}: {}: {}", printable(measurements.path), name, fault));
    for (ComparedRow& row : comparison.rows)
      if (row.name == name && row.is_in_both()) row.verdict = Verdict::wrong;
  }
}

}  // namespace

int Comparison::count(Verdict verdict) const {
  return static_cast<int>(std::ranges::count(rows, verdict, &ComparedRow::verdict));
}

int Comparison::count_environment() const {
  return static_cast<int>(std::ranges::count_if(
      differences, [](const Difference& d) { return d.weight != Weight::note; }));
}

void require_comparable(const Measurements& before, const Measurements& after) {
  require_same_kind(before, after);
  if (std::ranges::any_of(after.rows,
                          [&](const auto& row) { return before.rows.contains(row.first); }))
    return;
  throw Error(
      ErrorKind::bad_input,
      fmt::format("no row matches: {} rows in {}, such as {}; {} in {}, such as {}",
                  after.rows.size(), after.path, after.rows.begin()->first, before.rows.size(),
                  before.path, before.rows.begin()->first),
      {.hint = "measure the same operation, algorithms, transport, ranks, sizes and types"});
}

std::vector<ComparedRow> compare_samples(const Samples& before, const Samples& after,
                                         const CompareLimits& limits, bool in_turn) {
  std::vector<ComparedRow> rows = paired(before, after);
  std::vector<ComparedRow*> tested;
  std::vector<double> chances;
  std::vector<Tests> tests;
  for (ComparedRow& row : rows) {
    if (!row.is_in_both()) continue;
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
  require_comparable(before, after);
  const auto [old_samples, new_samples] = samples_of(before, after);
  Comparison result{.old_path = before.path,
                    .new_path = after.path,
                    .differences = differences(before, after),
                    .rows = {},
                    .wrong = {},
                    .is_exact = before.is_exact && after.is_exact,
                    .in_turn = !before.in_turn.empty() && before.in_turn == after.in_turn};
  result.rows = result.is_exact ? paired(old_samples, new_samples)
                                : compare_samples(old_samples, new_samples, limits, result.in_turn);
  const bool other_hardware =
      std::ranges::count(result.differences, Weight::hardware, &Difference::weight) > 0;
  for (ComparedRow& row : result.rows) {
    if (!row.is_in_both()) continue;
    if (result.is_exact) row.verdict = exact_verdict(row);
    if (other_hardware && row.verdict == Verdict::same) {
      row.verdict = Verdict::unclear;
      row.only_faster_half = false;
    }
    const std::string &was = before.rows.at(row.name).chosen, &now = after.rows.at(row.name).chosen;
    if (was != now) row.chosen = fmt::format("{} before, {} now", was, now);
  }
  for (const Measurements* each : {&before, &after}) mark_wrong(*each, result);
  return result;
}

void require_right(const Comparison& comparison) {
  if (comparison.wrong.empty()) return;
  throw Error(ErrorKind::wrong_result,
              fmt::format("{} of the compared results were wrong", comparison.wrong.size()),
              {.hint = "see the lines marked WRONG, and measure again"});
}

}  // namespace lockstep
