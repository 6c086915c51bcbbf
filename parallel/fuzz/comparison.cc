#include "parallel/fuzz/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep {

Tolerance tolerance_of(const TrainOptions& options) {
  const auto of = [](DType dtype) -> Tolerance {
    switch (dtype) {
      case DType::f64:
        return {1e-10, 1e-3};
      case DType::f32:
        return {3e-4, 1e-2};
      case DType::f16:
        return {0.03, 0.05};
      default:
        return {0.15, 0.05};
    }
  };
  const Tolerance own = of(options.dtype);
  return options.reduce_dtype && of(*options.reduce_dtype).relative > own.relative
             ? of(*options.reduce_dtype)
             : own;
}

// A NaN is near nothing.
void CaseComparison::near(const std::string& what, double got, double expected) {
  ++check_.compared;
  if (std::abs(got - expected) <= tolerance_.relative * std::abs(expected)) return;
  differs(fmt::format("{} is {:.12g}, on one rank {:.12g}", what, got, expected));
}

void CaseComparison::equal(const std::string& what, std::int64_t got, std::int64_t predicted) {
  ++check_.compared;
  if (got != predicted) differs(fmt::format("{} is {}, predicted {}", what, got, predicted));
}

void CaseComparison::values(const std::string& what, std::span<const double> got,
                            std::span<const double> expected, double all) {
  ++check_.compared;
  double squares = 0;
  for (std::size_t i = 0; i < got.size(); ++i) squares += std::pow(got[i] - expected[i], 2);
  const double error = std::sqrt(squares);
  const double size = std::max(norm(expected), tolerance_.least * all);
  if (error <= tolerance_.relative * size) return;
  differs(fmt::format("{} is off by {:.3g} of {:.3g}, both as L2 norms", what, error, size));
}

void CaseComparison::parameters(const std::string& what, const std::vector<Parameter>& whole,
                                const Values& got, const Values& expected) {
  const double all = norm(expected);
  for (const Parameter& parameter : whole) {
    const auto part = [&](const Values& of_all) {
      return std::span(of_all).subspan(static_cast<std::size_t>(parameter.offset),
                                       static_cast<std::size_t>(parameter.count));
    };
    values(fmt::format("{} of {}", what, parameter.name), part(got), part(expected), all);
  }
}

void CaseComparison::differs(const std::string& what) {
  check_.differences.push_back(fmt::format("rank {}: {}", rank_, what));
}

double norm(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

}  // namespace lockstep
