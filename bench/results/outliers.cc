#include "bench/results/outliers.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : values[middle - 1] / 2 + values[middle] / 2;
}

constexpr double deviations_per_mad = 1.4826;  // of a normal distribution

// The sum of all waits for the slowest one.
double sum_of_waits(std::span<const double> seconds) {
  const double most = *std::ranges::max_element(seconds);
  double sum = 0;
  for (const double own : seconds) sum += most - own;
  return sum;
}

}  // namespace

std::vector<Outlier> find_outliers(std::span<const MeasuredTime> times, const OutlierRule& rule) {
  std::vector<Outlier> found;
  if (times.size() < fewest_compared) return found;
  std::vector<double> seconds, deviations, errors;
  for (const MeasuredTime& time : times) seconds.push_back(time.seconds);
  const double median = median_of(seconds);
  for (const MeasuredTime& time : times) {
    deviations.push_back(std::abs(time.seconds - median));
    if (std::isfinite(time.error)) errors.push_back(time.error);
  }
  const double spread =
      std::max(deviations_per_mad * median_of(deviations), errors.empty() ? 0 : median_of(errors));
  for (std::size_t i = 0; i < times.size(); ++i) {
    const double excess = times[i].seconds - median;
    const bool repeats = std::isfinite(times[i].error) && excess > rule.repeats * times[i].error;
    if (excess <= 0 || excess <= rule.score * spread || excess <= rule.share * median ||
        (!repeats && excess < rule.long_seconds))
      continue;
    found.push_back(
        {.index = i,
         .seconds = times[i].seconds,
         .median = median,
         .score = spread > 0 ? excess / spread : std::numeric_limits<double>::infinity()});
  }
  std::ranges::stable_sort(found, std::ranges::greater{}, &Outlier::seconds);
  return found;
}

double lower_median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[(values.size() - 1) / 2];
}

bool exceeds(double seconds, std::vector<double> others, const OutlierRule& rule) {
  if (others.empty()) return true;
  const double usual = lower_median(others);
  for (double& other : others) other = std::abs(other - usual);
  const double spread = deviations_per_mad * lower_median(others);
  return seconds - usual > std::max(rule.score * spread, rule.share * usual);
}

double explained_share(std::span<const MeasuredTime> times, std::span<const Outlier> outliers,
                       double waited) {
  if (outliers.empty()) return 0;
  std::vector<double> seconds;
  for (const MeasuredTime& time : times) seconds.push_back(time.seconds);
  const double with = sum_of_waits(seconds);
  for (const Outlier& outlier : outliers) seconds[outlier.index] = outlier.median;
  const double explained = with - sum_of_waits(seconds);
  const double all = std::max(with, waited);
  return all > 0 ? std::clamp(explained / all, 0.0, 1.0) : 0;
}

}  // namespace lockstep
