// When the ranks of a pipeline are done: a replay of their action lists, and what their idle time
// is due to.
#pragma once

#include <vector>

#include "parallel/pipeline/schedules/schedule.h"

namespace lockstep {

// The passes of one micro-batch through a stage, in seconds.
struct StagePasses {
  double forward = 0, input_gradient = 0, weight_gradient = 0;
};

struct PipelineTimes {
  double makespan = 0;
  double busy = 0;  // of a rank, in the mean
  // The rest of the makespan: what equal stages would leave idle (or these, if that is less, as where
  // weights' gradients fill the gaps), what unequal ones add, and what messages between stages add.
  double bubble = 0, imbalance = 0, messages = 0;
};

// Replays the schedule. A message takes `hop` seconds; a blocking one keeps its sender from computing
// meanwhile. Throws Error (bad_input) naming the cycle if ranks wait for each other for ever.
PipelineTimes pipeline_times(const Schedule& schedule, const std::vector<StagePasses>& by_stage,
                             double hop, bool blocking);

}  // namespace lockstep
