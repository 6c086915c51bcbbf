// The bubble of a training: as measured, as its closed form says, and as the simulator has it with
// the times that the passes took, in the mean and each by itself.
#pragma once

#include <string>

#include "parallel/pipeline/execution/executor.h"
#include "parallel/pipeline/schedules/schedules.h"
#include "parallel/result.h"

namespace lockstep {

// Every rank calls it. `name` is the schedule's, or empty where it came from a file. The
// simulator's messages, of `message_bytes`, take what the links between ranks cost, exact under a
// virtual clock.
BubbleRecord measured_bubble(Communicator& world, const Schedule& schedule,
                             const Executor& executor, const std::string& name,
                             const PipelineShape& shape, Count message_bytes);

}  // namespace lockstep
