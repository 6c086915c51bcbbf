// Predicts the seconds of a plan's step on the machine of a profile. Every rank runs its unchanged
// code in virtual time, without data; the profile says how long its kernels and messages take.
//
//   clock   kernels and copies                       messages
//   cpu     on a processor of the rank's own         those of the link model
//   wall    on the core that is free first           the measured collective
//   wall    on a GPU, where the profile is of one    the same
#pragma once

#include "bench/calibrate/machine_profile.h"
#include "collectives/transport/launch/launch.h"
#include "parallel/plan/plan.h"

namespace lockstep {

struct PredictedStep {
  double seconds = 0;  // of the slowest rank
  // Mean over ranks. CPU time of kernels and between them, or a GPU's time of kernels.
  double compute_seconds = 0;
  double copy_seconds = 0;           // of copies and reductions
  double communication_seconds = 0;  // of collectives and messages, with the clock wall
};

// `links`: with the clock cpu, as in the run. `transport`: with the clock wall, one of host_transports; of
// GPUs, MachineProfile::transport_of_threads. Throws Error (bad_input) for the clock unit, for parameter
// servers, for a GPU with another clock than wall or with data in the host's memory, and for whatever the
// profile lacks.
PredictedStep predict_step(const Plan& plan, const MachineProfile& profile, Clock clock,
                           const LinkModel& links, const std::string& transport = "threads");

}  // namespace lockstep
