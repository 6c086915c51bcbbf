// The code of a lab as schedules next to ours, called "lab-gpipe" and so on, with the closed forms
// of ours.
#pragma once

#include "parallel/pipeline/schedules/schedule.h"

namespace lockstep {

// Null: there is none. Set before the menu of schedules is first used.
struct LabSchedules {
  Schedule (*gpipe)(const PipelineShape&) = nullptr;
  Schedule (*one_f_one_b)(const PipelineShape&) = nullptr;
  Schedule (*zb_h1)(const PipelineShape&) = nullptr;
  Schedule (*zb_h2)(const PipelineShape&) = nullptr;
};
inline LabSchedules& lab_schedules() {
  static LabSchedules schedules;
  return schedules;
}

}  // namespace lockstep
