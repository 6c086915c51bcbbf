// Metrics in Prometheus' text format.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/results/bench_formats.h"

namespace lockstep {

// One gauge: a sample for each set of labels, the median if it was measured several times.
class Metric {
 public:
  Metric(const char* name, const char* help) : name_(name), help_(help) {}

  void add(const Variables& labels, double value);
  // Empty without samples.
  std::string text() const;

 private:
  using Sample = std::pair<std::string, std::vector<double>>;
  const char *name_, *help_;
  std::vector<Sample> samples_;
};

// Converts a time like "2026-11-30T02:00:00Z"; returns 0 for any other text.
double unix_seconds(const std::string& time);

}  // namespace lockstep
