// A simulated pipeline schedule as a file.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/simulator/simulate.h"
#include "parallel/result.h"

namespace lockstep {

struct ScheduleResult {
  std::string name;
  Schedule schedule;
  PassTimes times;
  Timeline timeline;
  std::vector<TheoryRecord> theory;
};

// The schema lockstep.schedule/1: the times given, the makespan, both measures of the bubble, and
// every rank's actions with their beginnings and ends. A collective has no micro_batch.
std::string schedule_json(const ScheduleResult& result);

}  // namespace lockstep
