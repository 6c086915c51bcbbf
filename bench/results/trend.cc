#include "bench/results/trend.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <utility>

#include "bench/results/measure.h"
#include "collectives/base/error.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

// The first and the last night of the base window; none if each row has its own.
using BaseNights = std::optional<std::pair<std::size_t, std::size_t>>;

BaseNights base_nights(const History& history, const std::string& base) {
  if (base.empty()) return {};
  constexpr std::string_view between = "..", hint = "write it as 2026-11-01..2026-11-07";
  const std::size_t at = base.find(between);
  require(at != std::string::npos && at > 0 && at + between.size() < base.size(),
          fmt::format("--base '{}'", base), hint);
  const std::string first = base.substr(0, at), last = base.substr(at + between.size());
  BaseNights nights;
  for (std::size_t i = 0; i < history.nights.size(); ++i) {
    const std::string& time = history.nights[i].time;
    if (time < first || time.substr(0, last.size()) > last) continue;
    nights = {nights ? nights->first : i, i};
  }
  require(nights.has_value(),
          fmt::format("--base {}: no night from {} to {} is in it", base,
                      history.nights.front().time, history.nights.back().time),
          hint);
  return nights;
}

std::vector<TrendPoint> points_of(const History& history, const std::string& name) {
  std::vector<TrendPoint> points;
  for (std::size_t night = 0; night < history.nights.size(); ++night) {
    const Measurements& measured = history.nights[night].measured;
    const auto row = measured.rows.find(name);
    if (row != measured.rows.end() && !measured.wrong.contains(name))
      points.push_back({.night = night, .us = percentile(row->second.repetitions, 0.5)});
  }
  return points;
}

// The median of the points without outliers from one night to another; none if there are none.
std::optional<double> median_of(const std::vector<TrendPoint>& points, std::size_t first,
                                std::size_t last) {
  std::vector<double> values;
  for (const TrendPoint& point : points)
    if (point.night >= first && point.night <= last && !point.is_outlier)
      values.push_back(point.us);
  return values.empty() ? std::nullopt : std::optional(percentile(std::move(values), 0.5));
}

// The last night of the row's own base window.
std::size_t end_of_base(const RowTrend& row) {
  if (row.drift) return row.points[shortest_level - 1].night;
  return row.changes.empty() ? row.points.back().night : row.changes.front().previous;
}

void judge(RowTrend& row, const BaseNights& base, double effect) {
  const auto [first, last] = base.value_or(std::pair(std::size_t{0}, end_of_base(row)));
  const std::size_t end = row.points.back().night;
  const std::size_t begin_of_level = row.drift
                                         ? row.points[row.points.size() - shortest_level].night
                                     : row.changes.empty() ? 0
                                                           : row.changes.back().night;
  row.base_us = median_of(row.points, first, last);
  row.level_us = median_of(row.points, begin_of_level, end).value_or(row.points.back().us);
  for (RowChange& change : row.changes) {
    change.is_accepted = base && change.night <= last;
    change.is_open = !change.is_accepted && change.after > change.before &&
                     row.level_us >= change.before * (1 + effect);
    row.is_slower = row.is_slower || change.is_open;
  }
  if (row.drift && row.base_us) row.is_slower = row.change() >= effect;
}

// Tells where a row changed because auto chose another algorithm.
void add_choices(RowTrend& row, const History& history) {
  const auto chosen_on = [&](std::size_t night) {
    return history.nights[night].measured.rows.at(row.name).chosen;
  };
  for (RowChange& change : row.changes)
    if (const auto was = chosen_on(change.previous), now = chosen_on(change.night); was != now)
      change.chosen = fmt::format("{} before, {} now", was, now);
}

RowTrend trend_of(const std::string& name, std::vector<TrendPoint> points, bool is_exact,
                  const ChangeLimits& limits) {
  RowTrend row{
      .name = name, .points = std::move(points), .changes = {}, .drift = {}, .base_us = {}};
  std::vector<double> values;
  for (const TrendPoint& point : row.points) values.push_back(point.us);
  const SeriesChanges found = is_exact ? exact_changes_of(values) : changes_of(values, limits);
  for (const std::size_t at : found.outliers) row.points[at].is_outlier = true;
  for (const ChangePoint& change : found.changes)
    row.changes.push_back({.night = row.points[change.at].night,
                           .previous = row.points[change.at - 1].night,
                           .before = change.before,
                           .after = change.after,
                           .chance = change.chance,
                           .chosen = {},
                           .is_accepted = false,
                           .is_open = false});
  row.drift = found.drift;
  return row;
}

}  // namespace

int Trends::count_slower() const {
  return static_cast<int>(std::ranges::count(rows, true, &RowTrend::is_slower));
}

Trends trends_of(const History& history, const TrendOptions& options) {
  const BaseNights base = base_nights(history, options.base);
  std::map<std::string, int, ByNumbers> names;
  for (const Night& night : history.nights)
    for (const auto& [name, row] : night.measured.rows) ++names[name];
  const bool is_exact = history.is_exact();
  Trends trends{
      .rows = {}, .effect = is_exact ? virtual_time_rounding : options.limits.effect, .wrong = {}};
  for (const std::string& name : names | std::views::keys) {
    std::vector<TrendPoint> points = points_of(history, name);
    if (points.empty()) continue;
    RowTrend row = trend_of(name, std::move(points), is_exact, options.limits);
    judge(row, base, trends.effect);
    add_choices(row, history);
    trends.rows.push_back(std::move(row));
  }
  const Measurements& last = history.nights.back().measured;
  for (const auto& [name, fault] : last.wrong)
    trends.wrong.push_back(fmt::format("WRONG: {}: {}: {}", printable(last.path), name, fault));
  return trends;
}

std::vector<std::string> changed_between(const History& history, std::size_t before,
                                         std::size_t after, bool notes) {
  std::vector<std::string> changed;
  for (auto& [weight, text] :
       differences(history.nights[before].measured, history.nights[after].measured)) {
    // On the wall clock the link is measured anew every night.
    const bool is_measured = weight == Weight::note && text.starts_with("link: ");
    if (!is_measured && (notes || weight != Weight::note)) changed.push_back(std::move(text));
  }
  return changed;
}

}  // namespace lockstep
