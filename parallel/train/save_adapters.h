// Writes the adapters that a run has trained, whole and alone, for the library peft.
#pragma once

#include "parallel/rank/training.h"

namespace lockstep {

// Throws Error (bad_input) unless the folder can be made: a check before a long run.
void check_adapters_output(const std::string& folder);
// Every rank calls it. The folder appears when it is complete.
void save_adapters(const Plan& plan, RankContext& context, TrainingRank& rank);

}  // namespace lockstep
