// The result file of a simulated pipeline schedule.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/simulator/simulate.h"
#include "parallel/plan/result.h"

namespace lockstep {

struct ScheduleResult {
  std::string name;
  Schedule schedule;
  PassTimes times;
  Timeline timeline;
  std::vector<TheoryRecord> theory;
};

// Schema lockstep.schedule/1: the given times, the makespan, both measures of the bubble, and each
// rank's actions with their begin and end. A collective has no micro_batch.
std::string schedule_json(const ScheduleResult& result);

}  // namespace lockstep
