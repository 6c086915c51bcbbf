#include "bench/results/change_points.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace lockstep {
namespace {

using Values = std::vector<double>;

// Times are not known better than this; without it, equal values would make any difference certain.
constexpr double least_noise = 0.001;
constexpr std::size_t most_changes = 20;
constexpr std::size_t fewest_per_outlier = 8;
constexpr double least_in_order = 0.8;

double as_double(std::size_t values) { return static_cast<double>(values); }

double median(Values values) {
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

// Sums of squared deviations from the mean, of any stretch of the values.
class Deviations {
 public:
  explicit Deviations(const Values& values) : sums_(1), squares_(1), origin_(values.front()) {
    for (const double value : values) {
      const double moved = value - origin_;  // keeps the digits that differences of squares lose
      sums_.push_back(sums_.back() + moved);
      squares_.push_back(squares_.back() + moved * moved);
    }
  }
  double mean(std::size_t begin, std::size_t end) const {
    return origin_ + (sums_[end] - sums_[begin]) / as_double(end - begin);
  }
  double squared(std::size_t begin, std::size_t end) const {
    const double sum = sums_[end] - sums_[begin];
    return std::max(0.0, squares_[end] - squares_[begin] - sum * sum / as_double(end - begin));
  }

 private:
  Values sums_, squares_;
  double origin_;
};

// The four nearest values on each side of a value, without outliers found before.
Values left_of(const Values& logs, const std::vector<std::size_t>& outliers, std::size_t at) {
  Values near;
  for (std::size_t i = at; i-- > 0 && near.size() < shortest_level;)
    if (std::ranges::count(outliers, i) == 0) near.push_back(logs[i]);
  return near;
}

Values right_of(const Values& logs, std::size_t at) {
  const std::size_t end = std::min(logs.size(), at + 1 + shortest_level);
  return {logs.begin() + static_cast<std::ptrdiff_t>(at) + 1,
          logs.begin() + static_cast<std::ptrdiff_t>(end)};
}

std::vector<std::size_t> outliers_of(const Values& logs, double effect) {
  std::vector<std::size_t> found;
  if (logs.size() < shortest_level) return found;
  Values steps;  // a change of the level is one of many
  for (std::size_t i = 1; i < logs.size(); ++i) steps.push_back(std::abs(logs[i] - logs[i - 1]));
  constexpr double deviation_of_median = 1.4826, deviations = 4;
  const double noise = median(steps) * deviation_of_median / std::numbers::sqrt2;
  const double far = std::max(deviations * noise, std::log1p(effect));
  for (std::size_t i = 0; i < logs.size(); ++i) {
    const Values left = left_of(logs, found, i), right = right_of(logs, i);
    double from_left = left.empty() ? 0 : logs[i] - median(left);
    const double from_right = right.empty() ? from_left : logs[i] - median(right);
    if (left.empty()) from_left = from_right;
    if (std::min(from_left, from_right) > far || std::max(from_left, from_right) < -far)
      found.push_back(i);
  }
  return found;
}

// The best division of the values into each number of levels, by the ends of the levels.
class Divisions {
 public:
  explicit Divisions(const Deviations& deviations, std::size_t count)
      : most_(std::min(most_changes, count / shortest_level - 1)),
        cost_(most_ + 1, Values(count + 1, std::numeric_limits<double>::infinity())),
        begin_(most_ + 1, std::vector<std::size_t>(count + 1)) {
    for (std::size_t end = shortest_level; end <= count; ++end)
      cost_[0][end] = deviations.squared(0, end);
    for (std::size_t changes = 1; changes <= most_; ++changes)
      for (std::size_t end = (changes + 1) * shortest_level; end <= count; ++end)
        for (std::size_t at = changes * shortest_level; at + shortest_level <= end; ++at) {
          const double cost = cost_[changes - 1][at] + deviations.squared(at, end);
          if (cost >= cost_[changes][end]) continue;
          cost_[changes][end] = cost;
          begin_[changes][end] = at;
        }
  }
  std::size_t most() const { return most_; }
  double cost(std::size_t changes) const { return cost_[changes].back(); }
  // 0, where each change is, and the number of values.
  std::vector<std::size_t> bounds(std::size_t changes) const {
    std::vector<std::size_t> bounds = {begin_[0].size() - 1};
    for (std::size_t left = changes; left > 0; --left)
      bounds.push_back(begin_[left][bounds.back()]);
    bounds.push_back(0);
    std::ranges::reverse(bounds);
    return bounds;
  }

 private:
  std::size_t most_;
  std::vector<Values> cost_;
  std::vector<std::vector<std::size_t>> begin_;
};

ChangePoint tested_change(const Deviations& deviations, std::size_t begin, std::size_t at,
                          std::size_t end, std::size_t count) {
  const double was = deviations.mean(begin, at), now = deviations.mean(at, end);
  const std::size_t freedom = end - begin - 2;
  const double variance =
      (deviations.squared(begin, at) + deviations.squared(at, end)) / as_double(freedom) +
      least_noise * least_noise;
  const double t =
      (now - was) / std::sqrt(variance * (1 / as_double(at - begin) + 1 / as_double(end - at)));
  const double chance = std::min(1.0, chance_of_t(t, freedom) * as_double(count));
  return {.at = at, .before = std::exp(was), .after = std::exp(now), .chance = chance};
}

// Of all pairs of a value before a change and one after it, outliers included, the share that differs
// in the direction in which most do. Mann and Whitney's statistic over its largest value.
double share_in_order(const Values& logs, std::size_t begin, std::size_t at, std::size_t end) {
  double larger = 0;
  for (std::size_t i = begin; i < at; ++i)
    for (std::size_t j = at; j < end; ++j)
      larger += logs[j] > logs[i] ? 1 : logs[j] == logs[i] ? 0.5 : 0;
  const double share = larger / (as_double(at - begin) * as_double(end - at));
  return std::max(share, 1 - share);
}

bool passes(const ChangePoint& change, const ChangeLimits& limits) {
  const double ratio = std::max(change.after / change.before, change.before / change.after);
  return ratio >= 1 + limits.effect && change.chance <= limits.chance;
}

// A series without its outliers.
struct Kept {
  Values logs;
  std::vector<std::size_t> places;  // in the whole series
};

std::vector<ChangePoint> found_in(const Divisions& divisions, const Deviations& deviations,
                                  const Kept& kept, const Values& logs,
                                  const ChangeLimits& limits) {
  const std::size_t count = kept.logs.size();
  const auto place = [&](std::size_t bound) {
    return bound == 0 ? 0 : bound == count ? logs.size() : kept.places[bound];
  };
  for (std::size_t changes = divisions.most(); changes > 0; --changes) {
    const std::vector<std::size_t> bounds = divisions.bounds(changes);
    std::vector<ChangePoint> found;
    for (std::size_t i = 1; i + 1 < bounds.size(); ++i) {
      const std::size_t begin = bounds[i - 1], at = bounds[i], end = bounds[i + 1];
      ChangePoint change = tested_change(deviations, begin, at, end, count);
      if (!passes(change, limits) ||
          share_in_order(logs, place(begin), place(at), place(end)) < least_in_order)
        break;
      change.at = place(at);
      found.push_back(change);
    }
    if (found.size() == changes) return found;
  }
  return {};
}

// The change along the line through the logarithms, if the line is certain, reaches the effect and
// describes them better than the levels by Schwarz's criterion ("Estimating the dimension of a
// model", 1978).
std::optional<double> drift_of(const Values& logs, double cost_of_levels, std::size_t changes,
                               const ChangeLimits& limits) {
  constexpr double clearly = 6;  // a difference of the criterion that is called strong
  const double count = as_double(logs.size()), middle = (count - 1) / 2;
  double products = 0, squares = 0;
  for (std::size_t i = 0; i < logs.size(); ++i) {
    products += (as_double(i) - middle) * logs[i];
    squares += (as_double(i) - middle) * (as_double(i) - middle);
  }
  const double slope = products / squares, floor = least_noise * least_noise * count;
  const double rest = std::max(0.0, Deviations(logs).squared(0, logs.size()) - slope * products);
  const double t = slope / std::sqrt((rest + floor) / (count - 2) / squares);
  const double as_line = count * std::log(rest + floor) + 2 * std::log(count);
  const double as_levels =
      count * std::log(cost_of_levels + floor) + (2 * as_double(changes) + 1) * std::log(count);
  const bool is_drift = std::abs(slope) * (count - 1) >= std::log1p(limits.effect) &&
                        chance_of_t(t, logs.size() - 2) * count <= limits.chance &&
                        as_line + clearly < as_levels;
  return is_drift ? std::optional(std::expm1(slope * (count - 1))) : std::nullopt;
}

}  // namespace

double chance_of_t(double t, std::size_t freedom) {
  // Abramowitz and Stegun, "Handbook of mathematical functions", 26.7.3 and 26.7.4.
  const double angle = std::atan(std::abs(t) / std::sqrt(as_double(freedom)));
  const double cosine = std::cos(angle), sine = std::sin(angle);
  const bool is_odd = freedom % 2 == 1;
  double term = !is_odd ? 1 : freedom > 1 ? cosine : 0, sum = term;
  for (std::size_t i = is_odd ? 3 : 2; i + 2 <= freedom; i += 2) {
    term *= (as_double(i) - 1) / as_double(i) * cosine * cosine;
    sum += term;
  }
  const double within = is_odd ? 2 / std::numbers::pi * (angle + sine * sum) : sine * sum;
  return std::max(0.0, 1 - within);
}

SeriesChanges changes_of(const std::vector<double>& values, const ChangeLimits& limits) {
  Values logs;
  for (const double value : values) logs.push_back(std::log(value));
  SeriesChanges result{.outliers = outliers_of(logs, limits.effect), .changes = {}, .drift = {}};
  const bool are_rare = result.outliers.size() * fewest_per_outlier <= values.size();
  Kept kept;
  for (std::size_t i = 0; i < logs.size(); ++i)
    if (!are_rare || std::ranges::count(result.outliers, i) == 0) {
      kept.logs.push_back(logs[i]);
      kept.places.push_back(i);
    }
  if (kept.logs.size() < 2 * shortest_level) return result;
  const Deviations deviations(kept.logs);
  const Divisions divisions(deviations, kept.logs.size());
  result.changes = found_in(divisions, deviations, kept, logs, limits);
  result.drift =
      drift_of(kept.logs, divisions.cost(result.changes.size()), result.changes.size(), limits);
  if (result.drift) result.changes.clear();
  return result;
}

SeriesChanges exact_changes_of(const std::vector<double>& values) {
  SeriesChanges result;
  for (std::size_t i = 1; i < values.size(); ++i)
    if (std::abs(values[i] / values[i - 1] - 1) > virtual_time_rounding)
      result.changes.push_back({.at = i, .before = values[i - 1], .after = values[i], .chance = 0});
  return result;
}

}  // namespace lockstep
