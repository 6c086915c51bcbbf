// Metrics in Prometheus' text format.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/results/bench_formats.h"

namespace lockstep {

// The samples of one metric, a gauge, by labels; one with several repetitions has their median.
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

// Of "2026-11-30T02:00:00Z"; 0 of other texts.
double unix_seconds(const std::string& time);

}  // namespace lockstep
