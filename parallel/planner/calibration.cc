#include "parallel/planner/calibration.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr double golden = 0.6180339887498949;
constexpr double tolerance = 1e-4;  // of a constant, relative to its value
constexpr int rounds_of_several = 4;

// The minimum of f between two bounds, if f has one minimum there: golden-section search on the
// logarithm.
template <typename Function>
double argmin(double least, double most, const Function& f) {
  double low = std::log(least), high = std::log(most);
  double left = high - golden * (high - low), right = low + golden * (high - low);
  double at_left = f(std::exp(left)), at_right = f(std::exp(right));
  while (high - low > tolerance) {
    if (at_left <= at_right) {
      high = right, right = left, at_right = at_left;
      left = high - golden * (high - low), at_left = f(std::exp(left));
    } else {
      low = left, left = right, at_left = at_right;
      right = low + golden * (high - low), at_right = f(std::exp(right));
    }
  }
  return std::exp((low + high) / 2);
}

double& constant(SoftwareProfile& profile, const std::string& name) {
  return profile.*
         std::ranges::find(profile_fields(), name, &ConstantField<SoftwareProfile>::name)->value;
}

}  // namespace

double relative_error(const SoftwareProfile& profile, const std::vector<MeasuredStep>& steps) {
  double squares = 0;
  for (const MeasuredStep& step : steps) {
    const double predicted =
        predict_step(*step.model, *step.arrangement, *step.cluster, profile).seconds;
    squares += std::pow(predicted / step.seconds - 1, 2);
  }
  return steps.empty() ? 0 : std::sqrt(squares / static_cast<double>(steps.size()));
}

SoftwareProfile calibrated(const SoftwareProfile& profile, const std::vector<MeasuredStep>& steps) {
  SoftwareProfile result = profile;
  std::vector<FittedConstant> fitted;
  for (const FittedConstant& entry : profile.fitted)
    if (entry.rows <= static_cast<int>(steps.size())) fitted.push_back(entry);
  const int rounds = fitted.size() > 1 ? rounds_of_several : 1;
  for (int round = 0; round < rounds; ++round)
    for (const FittedConstant& entry : fitted) {
      const auto error = [&](double value) {
        SoftwareProfile trial = result;
        constant(trial, entry.name) = value;
        return relative_error(trial, steps);
      };
      const double before = error(constant(result, entry.name)),
                   best = argmin(entry.least, entry.most, error);
      if (error(best) < before) constant(result, entry.name) = best;
    }
  return result;
}

}  // namespace lockstep
