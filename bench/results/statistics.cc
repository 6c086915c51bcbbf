#include "bench/results/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {

double chance_of_being_larger(const std::vector<double>& old_samples,
                              const std::vector<double>& new_samples) {
  struct Sample {
    double value;
    bool is_new;
  };
  std::vector<Sample> all;
  for (const double value : old_samples) all.push_back({value, false});
  for (const double value : new_samples) all.push_back({value, true});
  std::ranges::sort(all, {}, &Sample::value);

  const double n = static_cast<double>(old_samples.size()),
               m = static_cast<double>(new_samples.size()), both = n + m;
  double rank_sum = 0;  // of the new samples
  double ties = 0;      // the sum of t^3 - t over groups of t equal values
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin;
    while (end < all.size() && all[end].value == all[begin].value) ++end;
    const double equal = static_cast<double>(end - begin);
    const double rank = static_cast<double>(begin + 1 + end) / 2;
    for (std::size_t i = begin; i < end; ++i) rank_sum += all[i].is_new ? rank : 0;
    ties += equal * equal * equal - equal;
    begin = end;
  }
  const double larger = rank_sum - m * (m + 1) / 2;  // pairs whose new sample is larger
  const double variance = n * m / 12 * (both + 1 - ties / (both * (both - 1)));
  if (n == 0 || m == 0 || variance <= 0) return 1;
  constexpr double continuity = 0.5;
  const double deviations = (larger - n * m / 2 - continuity) / std::sqrt(variance);
  return std::erfc(deviations / std::sqrt(2)) / 2;
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
