// When the ranks of a pipeline are done: a replay of their action lists, and what their idle time
// is due to. A rank is a GPU and the host that issues its kernels, each with a clock of its own. The host's
// clock catches up with the GPU's when it waits for a message of another rank, as Megatron-Core does
// (ModelParallelConfig.batch_p2p_sync), and when the step ends.
#pragma once

#include <vector>

#include "parallel/pipeline/schedules/schedule.h"
#include "parallel/planner/kernel_cost.h"

namespace lockstep {

// The passes of one micro-batch through a stage: both gradients in one pass, or in a pass of their own.
struct StagePasses {
  IssuedKernels forward, backward, input_gradient, weight_gradient;
};
// In seconds, if the host is always ahead.
StagePasses stage_passes(double forward, double input_gradient, double weight_gradient);

// What slow hosts add to the makespan: in forward passes alone, and what backward passes add to that. The
// sum never falls if hosts become slower.
struct HostWaits {
  double forward = 0, backward = 0;
  double total() const { return forward + backward; }
};

struct PipelineTimes {
  double makespan = 0;
  double busy = 0;  // of a GPU, in the mean
  // The rest of the makespan: what equal stages would leave idle (or these, if that is less, as where
  // weights' gradients fill the gaps), what unequal ones add, what messages between stages add, and
  // what waiting for hosts adds.
  double bubble = 0, imbalance = 0, messages = 0;
  HostWaits waits;
};

// Replays the schedule. A message takes `hop` seconds; a blocking one keeps its sender from computing
// meanwhile. Throws Error (bad_input) naming the cycle if ranks wait for each other for ever.
PipelineTimes pipeline_times(const Schedule& schedule, const std::vector<StagePasses>& by_stage,
                             double hop, bool blocking);

}  // namespace lockstep
