// A series of measured times of any length in bounded memory: after 256 values only every second
// one is kept and added, then every fourth, and so on.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/results/change_points.h"

namespace lockstep {

class Series {
 public:
  void add(double value);
  const std::vector<double>& values() const { return values_; }
  // The number of the value values()[index] among all that were added.
  std::size_t number_of(std::size_t index) const { return index * stride_; }

 private:
  std::vector<double> values_;
  std::size_t stride_ = 1, added_ = 0;
};

// The last change of level towards slower times that has not been undone since, by `effect` at least.
// Its values are medians of up to 64 blocks, so noise within a block is no change; `at` is the number
// of the block's first value. None in a series of fewer than 32 values.
struct Slowdown {
  std::size_t at = 0;
  double ratio = 1;  // the new level relative to the first
};
Slowdown slowdown_of(const Series& series, double effect);

}  // namespace lockstep
