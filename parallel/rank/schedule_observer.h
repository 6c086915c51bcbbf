// Observes a rank while it runs a schedule: the passes of its stages, and the schedule's collectives.
#pragma once

#include "models/gpt/gpt_stage.h"
#include "parallel/pipeline/schedules/schedule.h"

namespace lockstep {

// gradient_ready() comes once for each parameter: the last backward pass of its stage has completed
// this rank's gradient, which may be reduced from now on.
class ScheduleObserver : public PassObserver {
 public:
  // Unshard a stage before its next actions, reshard it after them, and reduce its complete
  // gradients. Does nothing if nothing is sharded: then gradients are reduced as they become ready.
  virtual void take(const Action& /*collective*/) {}
};

}  // namespace lockstep
