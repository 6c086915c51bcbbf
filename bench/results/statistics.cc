#include "bench/results/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

// The ranks of the samples, from 1; equal samples share the middle of theirs.
std::vector<double> ranks_of(const std::vector<double>& samples) {
  std::vector<std::size_t> order(samples.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return samples[i]; });
  std::vector<double> ranks(samples.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && samples[order[end]] == samples[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i)
      ranks[order[i]] = static_cast<double>(begin + 1 + end) / 2;
    begin = end;
  }
  return ranks;
}

double count_of(const std::vector<double>& samples) { return static_cast<double>(samples.size()); }

// Every k-th of sorted samples, so that pairs of two sets are few enough to sort.
std::vector<double> thinned(const std::vector<double>& samples) {
  constexpr std::size_t most = 500;
  if (samples.size() <= most) return samples;
  std::vector<double> kept;
  for (std::size_t i = 0; i < most; ++i)
    kept.push_back(samples[(2 * i + 1) * samples.size() / (2 * most)]);
  return kept;
}

}  // namespace

double autocorrelation_time(const std::vector<double>& samples) {
  std::vector<double> ranks = ranks_of(samples);
  const double mean = (count_of(samples) + 1) / 2;
  const auto covariance = [&](std::size_t lag) {
    double sum = 0;
    for (std::size_t i = 0; i + lag < ranks.size(); ++i)
      sum += (ranks[i] - mean) * (ranks[i + lag] - mean);
    return sum;
  };
  const double variance = covariance(0);
  if (variance <= 0) return 1;
  constexpr std::size_t longest = 100;  // lags; the sum stops sooner unless the machine drifts
  double pairs = 0;
  for (std::size_t lag = 0; lag + 1 < std::min(ranks.size(), longest); lag += 2) {
    const double pair = covariance(lag) + covariance(lag + 1);
    if (pair <= 0) break;
    pairs += pair / variance;
  }
  return std::max(1.0, 2 * pairs - 1);
}

SampleSet all_of(std::vector<double> samples) {
  const double independent = count_of(samples) / autocorrelation_time(samples);
  std::ranges::sort(samples);
  return {std::move(samples), independent};
}

SampleSet faster_half(SampleSet all) {
  all.samples.resize((all.samples.size() + 1) / 2);
  // The half ends at a median, which also varies: a quartile of all samples has 3/2 of the variance
  // of the median of as many independent ones as the half has.
  return {std::move(all.samples), all.independent / 2 / 1.5};
}

std::pair<SampleSet, SampleSet> pairs_of(const std::vector<double>& before,
                                         const std::vector<double>& after) {
  std::vector<double> roots, inverses;
  for (std::size_t i = 0; i < before.size(); ++i) {
    roots.push_back(std::sqrt(after[i] / before[i]));
    inverses.push_back(1 / roots.back());
  }
  SampleSet first = all_of(std::move(inverses)), second = all_of(std::move(roots));
  // Each ratio is in both sets, so together they hold no more information than the ratios.
  first.independent /= 2, second.independent /= 2;
  return {std::move(first), std::move(second)};
}

double chance_of_being_larger(const SampleSet& before, const SampleSet& after) {
  std::vector<double> all = before.samples;
  all.insert(all.end(), after.samples.begin(), after.samples.end());
  const std::vector<double> ranks = ranks_of(all);
  const double n = count_of(before.samples), m = count_of(after.samples), both = n + m;
  const double rank_sum =
      std::accumulate(ranks.begin() + std::ssize(before.samples), ranks.end(), 0.0);
  double ties = 0;  // the sum of t^3 - t over groups of t equal values
  std::ranges::sort(all);
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin;
    while (end < all.size() && all[end] == all[begin]) ++end;
    const double equal = static_cast<double>(end - begin);
    ties += equal * equal * equal - equal;
    begin = end;
  }
  const double larger = rank_sum - m * (m + 1) / 2;  // pairs whose new sample is larger
  const double variance = n * m / 12 * (both + 1 - ties / (both * (both - 1)));
  if (n == 0 || m == 0 || variance <= 0) return 1;
  constexpr double continuity = 0.5;
  const double inflation = (n / before.independent * m + m / after.independent * n) / both;
  const double deviations = (larger - n * m / 2 - continuity) / std::sqrt(variance * inflation);
  return std::erfc(deviations / std::sqrt(2)) / 2;
}

RatioInterval ratio_interval(const SampleSet& before, const SampleSet& after) {
  const std::vector<double> divisors = thinned(before.samples);
  std::vector<double> ratios;
  for (const double sample : thinned(after.samples))
    for (const double divisor : divisors) ratios.push_back(sample / divisor);
  std::ranges::sort(ratios);
  // The share of pairs whose new sample is larger has this standard deviation.
  const double deviation = std::sqrt((1 / before.independent + 1 / after.independent) / 12);
  constexpr double deviations = 1.645;  // 90 % of a normal distribution
  const double aside = std::max(0.0, 0.5 - deviations * deviation) * count_of(ratios);
  const auto outside = static_cast<std::size_t>(aside);
  return {ratios[outside], ratios[ratios.size() - 1 - outside]};
}

std::vector<double> false_discovery_rates(const std::vector<double>& chances) {
  std::vector<std::size_t> order(chances.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return chances[i]; });
  std::vector<double> rates(chances.size());
  double smallest = 1;
  for (std::size_t place = order.size(); place > 0; --place) {
    const std::size_t i = order[place - 1];
    smallest = std::min(
        smallest, chances[i] * static_cast<double>(chances.size()) / static_cast<double>(place));
    rates[i] = smallest;
  }
  return rates;
}

}  // namespace lockstep
