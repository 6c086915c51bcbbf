// Predicts the seconds of a plan's step on the machine of a profile. Every rank runs its unchanged
// code in virtual time, without data; the profile says how long its kernels and messages take.
//
//   clock   kernels and copies                       messages
//   cpu     on a processor of the rank's own         those of the link model
//   wall    on the core that is free first           the measured collective
#pragma once

#include "bench/calibrate/machine_profile.h"
#include "collectives/transport/launch/launch.h"
#include "parallel/plan/plan.h"

namespace lockstep {

struct PredictedStep {
  double seconds = 0;                // of the slowest rank
  double compute_seconds = 0;        // CPU time of kernels and between them, the mean over ranks
  double copy_seconds = 0;           // of copies and reductions
  double communication_seconds = 0;  // of collectives and messages, with the clock wall
};

// `links`: with the clock cpu, as in the run. `transport`: with the clock wall, one of transports. Throws Error (bad_input) for the clock unit, parameter
// servers, and whatever the profile lacks.
PredictedStep predict_step(const Plan& plan, const MachineProfile& profile, Clock clock,
                           const LinkModel& links, const std::string& transport = "threads");

}  // namespace lockstep
