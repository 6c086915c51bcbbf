// A plan's step by three engines, and each knows more than the one before it:
//
//   closed form    the mean kernels and copies of a rank, over 1 - bubble of the schedule; then its
//                  messages, each alpha + b beta, or its measured collectives; nothing overlaps. With the
//                  clock wall at least the time for which all of this keeps the cores busy
//   virtual time   the code of every rank, whose kernels and messages take the profile's times
//                  (predicted_step.h)
//   run            the median of training steps on this machine
#pragma once

#include <optional>
#include <vector>

#include "bench/calibrate/predicted_step.h"

namespace lockstep {

struct EngineSeconds {
  // Empty: what the rank sends has no closed form, or the schedule.
  std::optional<double> closed_form;
  double virtual_time = 0;
  std::vector<double> steps;  // of the run, without the first ones, which allocate

  double run() const;    // their median
  double noise() const;  // half of their interquartile range, over the median
};

// `spent` is what virtual time says of the plan.
std::optional<double> closed_form_seconds(const Plan& plan, const PredictedStep& spent,
                                          int processors, Clock clock, const LinkModel& links);
// Trains so many steps, and two more. Throws as predict_step() does.
EngineSeconds engine_seconds(const Plan& plan, const MachineProfile& profile, Clock clock,
                             const LinkModel& links, int steps);

}  // namespace lockstep
