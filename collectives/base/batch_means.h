// The mean of samples that follow one another, and its standard error.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>

namespace lockstep {

struct SampleMean {
  double value = 0;
  double error = 0;  // infinite with fewer than 4 samples
};

// Successive samples resemble each other, so the error is that of the mean of up to 8 batches of
// successive samples.
inline SampleMean mean_of(std::span<const double> samples) {
  if (samples.empty()) return {.value = 0, .error = std::numeric_limits<double>::infinity()};
  const auto mean = [](std::span<const double> part) {
    return std::accumulate(part.begin(), part.end(), 0.0) / static_cast<double>(part.size());
  };
  const double value = mean(samples);
  constexpr std::size_t fewest = 4, most_batches = 8;
  if (samples.size() < fewest)
    return {.value = value, .error = std::numeric_limits<double>::infinity()};
  const std::size_t batches = std::min(samples.size(), most_batches);
  double squares = 0;
  for (std::size_t i = 0; i < batches; ++i) {
    const std::size_t begin = i * samples.size() / batches,
                      end = (i + 1) * samples.size() / batches;
    squares += std::pow(mean(samples.subspan(begin, end - begin)) - value, 2);
  }
  const auto count = static_cast<double>(batches);
  return {.value = value, .error = std::sqrt(squares / (count - 1) / count)};
}

}  // namespace lockstep
