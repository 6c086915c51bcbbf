// Fits the constants that a profile marks as fitted, to measured steps.
#pragma once

#include <vector>

#include "parallel/planner/step_time.h"

namespace lockstep {

struct MeasuredStep {
  const Transformer* model = nullptr;
  const Arrangement* arrangement = nullptr;
  const ClusterSheet* cluster = nullptr;
  double seconds = 0;
};

// Returns the profile with the constants that minimise the squares of the steps' relative errors.
// A constant that needs more rows than there are keeps its value, as does one without an effect.
SoftwareProfile calibrated(const SoftwareProfile& profile, const std::vector<MeasuredStep>& steps);

// The root mean square of the steps' relative errors.
double relative_error(const SoftwareProfile& profile, const std::vector<MeasuredStep>& steps);

}  // namespace lockstep
