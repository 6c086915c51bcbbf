// What a schedule's closed forms say beside what its simulation shows.
#pragma once

#include <vector>

#include "parallel/pipeline/schedules.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/result.h"

namespace lockstep {

// One line for the makespan and one for every rank's micro-batches in flight, where there is a
// formula.
std::vector<TheoryRecord> schedule_theory(const ScheduleEntry& entry, const PipelineShape& shape,
                                          const PassTimes& times, const Timeline& timeline);

}  // namespace lockstep
