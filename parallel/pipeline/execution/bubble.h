// The bubble of a training run: as measured, by its closed form, and as simulated with the measured
// times of passes, both their means and each pass's own.
#pragma once

#include <string>

#include "parallel/pipeline/execution/executor.h"
#include "parallel/pipeline/schedules/schedules.h"
#include "parallel/plan/result.h"

namespace lockstep {

// Every rank calls it. `name` is the schedule's, or empty if it came from a file. The simulator's
// messages, of `message_bytes`, cost what the links between ranks cost; this is exact in virtual
// time.
BubbleRecord measured_bubble(Communicator& world, const Schedule& schedule,
                             const Executor& executor, const std::string& name,
                             const PipelineShape& shape, Count message_bytes);

// Returns the seconds of a step in which passes take these times, by rank and place in its
// schedule, and messages take none.
double seconds_without_messages(const Schedule& schedule,
                                const std::vector<std::vector<double>>& passes);

}  // namespace lockstep
