// A schedule's closed forms compared with its simulation.
#pragma once

#include <vector>

#include "parallel/pipeline/schedules/schedules.h"
#include "parallel/pipeline/simulator/simulate.h"
#include "parallel/plan/result.h"

namespace lockstep {

// One line for the makespan and one for every rank's micro-batches in flight, where there is a
// formula. The makespan's formulas hold if only passes take time.
std::vector<TheoryRecord> schedule_theory(const ScheduleEntry& entry, const PipelineShape& shape,
                                          const PassTimes& times, const Timeline& timeline);

}  // namespace lockstep
