// The schedule that the options of a training choose: one of the menu, or one from a file.
#pragma once

#include "parallel/options.h"
#include "parallel/pipeline/schedules.h"

namespace lockstep {

PipelineShape shape_of(const TrainOptions& options, int ranks);
// Throws Error (bad_input) for an unknown name, a shape that the schedule does not take, and a file
// that holds no schedule.
Schedule schedule_of(const TrainOptions& options, int ranks);

}  // namespace lockstep
