// The leaderboard of a lab: how long a step of the plan that a student chooses takes, in virtual time. A submission
// with all points sends what our code sends, so our code is timed, and nothing of the submission runs.
#pragma once

#include <optional>
#include <string>

#include "labs/grader/lab.h"

namespace lockstep {

struct RaceTime {
  double seconds = 0;
  std::string refused;  // why the plan takes no part; empty: it does
};

// Times the submission's plan. Nothing if the lab has no race, or the submission no plan.
std::optional<RaceTime> race_time(const Lab& lab, const std::string& submission);

}  // namespace lockstep
