#include "bench/burn_in/series.h"

#include <algorithm>

#include "bench/results/measure.h"

namespace lockstep {
namespace {

constexpr std::size_t most_values = 256, most_blocks = 64, fewest_values = 32;

}  // namespace

void Series::add(double value) {
  if (added_++ % stride_ != 0) return;
  values_.push_back(value);
  if (values_.size() < most_values) return;
  for (std::size_t i = 0; 2 * i < values_.size(); ++i) values_[i] = values_[2 * i];
  values_.resize(values_.size() / 2);
  stride_ *= 2;
}

Slowdown slowdown_of(const Series& series, double effect) {
  const std::vector<double>& values = series.values();
  if (values.size() < fewest_values) return {};
  const std::size_t length = (values.size() + most_blocks - 1) / most_blocks;
  std::vector<double> medians;
  for (std::size_t begin = 0; begin + length <= values.size(); begin += length) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
    medians.push_back(percentile({first, first + static_cast<std::ptrdiff_t>(length)}, 0.5));
  }
  if (std::ranges::any_of(medians, [](double median) { return median <= 0; })) return {};
  const SeriesChanges changes = changes_of(medians, {.effect = effect});
  if (changes.drift && *changes.drift > effect) return {.at = 0, .ratio = 1 + *changes.drift};
  if (changes.changes.empty()) return {};
  const double ratio = changes.changes.back().after / changes.changes.front().before;
  if (ratio <= 1 + effect) return {};
  const auto slower = std::ranges::find_if(
      changes.changes, [](const ChangePoint& change) { return change.change() > 0; });
  return {.at = series.number_of(slower->at * length), .ratio = ratio};
}

}  // namespace lockstep
