#include "models/optimizers/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep {

double LearningRateSchedule::at(int step) const {
  if (step < warmup_steps) return peak * (step + 1) / warmup_steps;
  if (!cosine) return peak;
  const int falling = std::max(1, total_steps - 1 - warmup_steps);
  const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) / falling);
  return minimum + (peak - minimum) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

}  // namespace lockstep
