// A history for a terminal: the latest times, and the series with their changes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "bench/results/compare.h"
#include "bench/results/trend.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

std::string counted(std::size_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string time_cell(double value) { return fmt::format("{:.2f} us", value); }

// The series as a digit a night, on a logarithmic scale from the least to the most. A range that is
// small next to the effect is drawn wider, or noise would fill it.
std::string digits_of(const RowTrend& row, std::size_t nights, double effect) {
  double least = row.points.back().us, most = least;
  for (const TrendPoint& point : row.points)
    if (!point.is_outlier) least = std::min(least, point.us), most = std::max(most, point.us);
  const double range = std::max(std::log(most / least), std::log1p(4 * std::max(effect, 0.01)));
  std::string text(nights, '.');
  for (const TrendPoint& point : row.points) {
    const double height = 9 * std::log(point.us / least) / range;
    text[point.night] =
        point.is_outlier ? '!' : static_cast<char>('0' + std::lround(std::clamp(height, 0.0, 9.0)));
  }
  for (auto change = row.changes.rbegin(); change != row.changes.rend(); ++change)
    text.insert(change->night, "|");
  return text;
}

std::string verdict_of(const RowChange& change) {
  const std::string text = change.after < change.before ? "faster"
                           : change.is_open             ? "SLOWER"
                           : change.is_accepted         ? "slower, accepted"
                                                        : "slower, recovered since";
  return fmt::format("{}  {}{}", change_text(change.change()), text,
                     change.chosen.empty() ? "" : "; auto chose " + change.chosen);
}

// The levels of a row, one a line.
std::string levels_of(const RowTrend& row, const std::vector<std::string>& labels) {
  std::string text;
  for (std::size_t i = 0; i <= row.changes.size(); ++i) {
    const std::size_t begin = i == 0 ? row.points.front().night : row.changes[i - 1].night;
    const std::size_t end =
        i == row.changes.size() ? row.points.back().night : row.changes[i].previous;
    const auto nights = std::ranges::count_if(row.points, [&](const TrendPoint& point) {
      return point.night >= begin && point.night <= end && !point.is_outlier;
    });
    const double level = i > 0                 ? row.changes[i - 1].after
                         : row.changes.empty() ? row.level_us
                                               : row.changes[0].before;
    const std::string change = i > 0 ? "  " + verdict_of(row.changes[i - 1]) : "";
    if (!row.drift)
      text += fmt::format("  {} to {}  {:>4} nights  {:>14}{}\n", labels[begin], labels[end],
                          nights, time_cell(level), change);
  }
  if (row.drift)
    text +=
        fmt::format("  {} to {}  {:>4} nights  drifts by {}, without a night that stands out{}\n",
                    labels[row.points.front().night], labels[row.points.back().night],
                    row.points.size(), change_text(*row.drift), row.is_slower ? "  SLOWER" : "");
  std::string outliers;
  for (const TrendPoint& point : row.points)
    if (point.is_outlier)
      outliers += fmt::format("{}{} {}", outliers.empty() ? "" : ", ", labels[point.night],
                              time_cell(point.us));
  if (outliers.empty()) return text;
  const bool is_last = row.points.back().is_outlier;
  return text + fmt::format("  outliers: {}{}\n", outliers,
                            is_last ? ": an outlier, or the first night of a change" : "");
}

// What the results say changed around a night: a change may be a night earlier or later than found.
std::string causes_at(const History& history, std::size_t night,
                      const std::vector<std::string>& labels) {
  std::string text;
  for (std::size_t after = std::max<std::size_t>(night, 2) - 1;
       after < std::min(night + 2, history.nights.size()); ++after)
    for (const std::string& change : changed_between(history, after - 1, after, true))
      text += fmt::format("  {}{}: {}\n", labels[after], after == night ? "" : " (near)", change);
  return text.empty() ? "  the results record no other change\n" : text;
}

// The rows that change at a night.
struct ChangedRows {
  std::size_t slower = 0, faster = 0;
  double least = std::numeric_limits<double>::infinity(), most = -least;
  std::string first;
};

std::string changes_by_night(const History& history, const Trends& trends,
                             const std::vector<std::string>& labels) {
  std::map<std::size_t, ChangedRows> nights;
  std::map<std::size_t, std::size_t> outliers;
  for (const RowTrend& row : trends.rows) {
    for (const RowChange& change : row.changes) {
      ChangedRows& at = nights[change.night];
      ++(change.after > change.before ? at.slower : at.faster);
      at.least = std::min(at.least, change.change());
      at.most = std::max(at.most, change.change());
      if (at.first.empty()) at.first = row.name;
    }
    for (const TrendPoint& point : row.points) outliers[point.night] += point.is_outlier;
  }
  const std::string of_rows = "of " + counted(trends.rows.size(), "row");
  std::string text;
  for (const auto& [night, rows] : nights) {
    const std::size_t count = rows.slower + rows.faster;
    text +=
        fmt::format("{}: {} slower, {} faster, {}: {} to {}; {}{}\n", labels[night], rows.slower,
                    rows.faster, of_rows, change_text(rows.least), change_text(rows.most),
                    rows.first, count > 1 ? fmt::format(" and {} more", count - 1) : "");
    text += causes_at(history, night, labels);
  }
  for (const auto& [night, count] : outliers)
    if (count > 0) text += fmt::format("{}: an outlier in {} {}\n", labels[night], count, of_rows);
  return text.empty() ? text
                      : "\nchanges by night, and what the results record as changed\n" + text;
}

std::string head_of(const History& history, const Trends& trends,
                    const std::vector<std::string>& labels) {
  std::string text;
  for (const std::string& wrong : trends.wrong) text += fmt::format("# {}\n", wrong);
  return text + fmt::format("# {}, {} to {}, {}\n", counted(history.nights.size(), "night"),
                            labels.front(), labels.back(), counted(trends.rows.size(), "row"));
}

}  // namespace

std::string show_text(const History& history, const Trends& trends) {
  const std::vector<std::string> labels = history.labels();
  std::string text = head_of(history, trends, labels);
  for (std::size_t night = 1; night < history.nights.size(); ++night)
    for (const std::string& change : changed_between(history, night - 1, night, false))
      text += fmt::format("# {}: {}\n", labels[night], change);
  std::size_t widest = 12;
  for (const RowTrend& row : trends.rows) widest = std::max(widest, row.name.size());
  text += fmt::format("{:<{}}{:>8}{:>13}{:>13}{:>13}{:>11}  {}\n", "measurement", widest, "nights",
                      "base (us)", "level (us)", "latest (us)", "change", "since");
  for (const RowTrend& row : trends.rows) {
    const TrendPoint& latest = row.points.back();
    text += fmt::format(
        "{:<{}}{:>8}{:>13}{:>13.2f}{:>13.2f}{:>11}  {}{}\n", row.name, widest, row.points.size(),
        row.base_us ? fmt::format("{:.2f}", *row.base_us) : "-", row.level_us, latest.us,
        row.base_us ? change_text(row.change()) : "-",
        row.changes.empty() ? labels[row.points.front().night] : labels[row.changes.back().night],
        latest.night + 1 == history.nights.size()
            ? (latest.is_outlier ? ", latest is an outlier" : "")
            : ", not measured since " + labels[latest.night]);
  }
  return text;
}

std::string trend_text(const History& history, const Trends& trends, const TrendOptions& options) {
  const std::vector<std::string> labels = history.labels();
  std::string text = head_of(history, trends, labels);
  if (history.is_exact())
    text += "# virtual time: every different time is a change, --effect has no effect\n";
  else
    text += fmt::format("# a change: {:.3g} % or more, for {} nights or more\n",
                        options.limits.effect * 100, shortest_level);
  if (!history.is_exact() && history.nights.size() < 2 * shortest_level)
    text += fmt::format("# warning: no change can be found in fewer than {} nights\n",
                        2 * shortest_level);
  text += "# a digit a night, 0 the fastest; | a change, ! an outlier, . not measured\n";
  for (const RowTrend& row : trends.rows)
    text +=
        fmt::format("{}\n  {}\n{}", row.name, digits_of(row, history.nights.size(), trends.effect),
                    levels_of(row, labels));
  text += changes_by_night(history, trends, labels);
  const auto faster = std::ranges::count_if(trends.rows, [&](const RowTrend& row) {
    return !row.is_slower && row.change() <= -trends.effect;
  });
  text += fmt::format("{} slower, {} faster, {} otherwise, of {}\n", trends.count_slower(), faster,
                      std::ssize(trends.rows) - trends.count_slower() - faster,
                      counted(trends.rows.size(), "row"));
  return text;
}

}  // namespace lockstep
