// The learning rate over the steps of a run.
#pragma once

namespace lockstep {

// Rises linearly to `peak` during warm-up. Then stays, or falls along half a cosine to `minimum` at
// the last step.
struct LearningRateSchedule {
  double peak = 0;
  int warmup_steps = 0;
  double minimum = 0;
  int total_steps = 0;
  bool cosine = false;

  // The learning rate of a step from 0 to total_steps - 1.
  double at(int step) const;
};

}  // namespace lockstep
