#include "parallel/fuzz/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace lockstep {
namespace {

// Returns the tolerance for the coarser of the gradients' own type and the type in which they are
// sent.
template <typename Of>
Tolerance coarser(const TrainOptions& options, Of of) {
  const Tolerance own = of(options.dtype);
  Tolerance coarsest = options.reduce_dtype ? loosest(own, of(*options.reduce_dtype)) : own;
  // Adapters are few, and average fewer errors.
  if (options.lora_rank > 0 && options.dtype != DType::f64) {
    coarsest.gradients *= 4;
    coarsest.values *= 4;
  }
  // Rounding turns singular vectors by itself over the gap between two singular values, and among
  // many matrices one has a small gap.
  if (options.optimizer == "galore" && options.dtype == DType::f64) {
    coarsest.gradients *= 10;
    coarsest.values *= 10;
  }
  return coarsest;
}

}  // namespace

CaseCheck& CaseCheck::operator+=(const CaseCheck& other) {
  compared += other.compared;
  skipped_steps += other.skipped_steps;
  turned_steps += other.turned_steps;
  std::ranges::copy(other.differences, std::back_inserter(differences));
  has_ended = has_ended || other.has_ended;
  is_refused = is_refused || other.is_refused;
  return *this;
}

Tolerance loosest(const Tolerance& one, const Tolerance& other) {
  return other.gradients > one.gradients ? other : one;
}

Tolerance tolerance_of(const TrainOptions& options) {
  return coarser(options, [](DType dtype) -> Tolerance {
    switch (dtype) {
      case DType::f64:
        return {.numbers = 1e-10, .gradients = 1e-10, .values = 1e-10, .least = 1e-3};
      case DType::f32:
        return {.numbers = 1e-5, .gradients = 3e-4, .values = 1e-5, .least = 1e-2};
      case DType::f16:
        return {.numbers = 5e-3, .gradients = 0.06, .values = 5e-3, .least = 5e-2};
      default:
        return {.numbers = 5e-2, .gradients = 0.2, .values = 2e-2, .least = 5e-2};
    }
  });
}

Tolerance tolerance_of_type(const TrainOptions& options) {
  return coarser(options, [](DType dtype) -> Tolerance {
    switch (dtype) {
      case DType::f64:
        return {.numbers = 1e-10, .gradients = 1e-10, .values = 1e-10, .least = 1e-3};
      case DType::f32:
        return {.numbers = 1e-6, .gradients = 3e-5, .values = 2e-6, .least = 1e-2};
      case DType::f16:
        return {.numbers = 2e-3, .gradients = 0.02, .values = 1.5e-3, .least = 5e-2};
      default:
        return {.numbers = 1e-2, .gradients = 0.08, .values = 1e-2, .least = 5e-2};
    }
  });
}

Tolerance tolerance_of_exchange(const TrainOptions& options) {
  if (options.exchange == "int8") return {.gradients = 0.04, .least = 1};
  if (options.exchange == "mxfp8") return {.gradients = 0.1, .least = 1};
  if (options.exchange == "qgz:8") return {.gradients = 0.04, .least = 1};
  if (options.exchange == "qgz:4") return {.gradients = 0.5, .least = 1};
  return tolerance_of(options);
}

void CaseComparison::require_that(bool condition, const std::string& otherwise) {
  ++check_.compared;
  if (!condition) check_.differences.push_back(fmt::format("rank {}: {}", rank_, otherwise));
}

// A number that is not finite is near nothing.
void CaseComparison::near(const std::string& what, double got, double expected, double rounding) {
  const double usual = tolerance_.numbers * std::abs(expected);
  const double allowed = std::isfinite(rounding) ? std::max(usual, 2 * rounding) : usual;
  require_that(std::isfinite(expected) && std::abs(got - expected) <= allowed,
               fmt::format("{} is {:.12g}, {} {:.12g}", what, got, reference_, expected));
}

void CaseComparison::equal(const std::string& what, double got, double predicted) {
  require_that(got == predicted, fmt::format("{} is {}, predicted {}", what, got, predicted));
}

void CaseComparison::at_most(const std::string& what, double got, double bound) {
  require_that(got <= bound, fmt::format("{} is {}, predicted at most {}", what, got, bound));
}

void CaseComparison::near(const std::string& what, std::span<const double> got,
                          std::span<const double> expected, double all, double tolerance) {
  double squares = 0;
  for (std::size_t i = 0; i < got.size(); ++i) squares += std::pow(got[i] - expected[i], 2);
  const double error = std::sqrt(squares);
  const double size = std::max(norm(expected), tolerance_.least * all);
  require_that(error <= tolerance * size,
               fmt::format("{} is off by {:.3g} of {:.3g} {}, both as L2 norms", what, error, size,
                           reference_));
}

void CaseComparison::near(const std::string& what, const std::vector<Parameter>& whole,
                          const Values& got, const Values& expected, double tolerance) {
  if (got.size() != expected.size())
    return require_that(false, fmt::format("{} has {} elements, {} {}", what, got.size(),
                                           reference_, expected.size()));
  const double all = norm(expected);
  for (const Parameter& parameter : whole) {
    const auto part = [&](const Values& of_all) {
      return std::span(of_all).subspan(static_cast<std::size_t>(parameter.offset),
                                       static_cast<std::size_t>(parameter.count));
    };
    near(fmt::format("{} of {}", what, parameter.name), part(got), part(expected), all, tolerance);
  }
}

double norm(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

}  // namespace lockstep
