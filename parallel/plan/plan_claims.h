// What a rank claims about the run it is about to begin, so that ranks that would train something
// different are refused.
#pragma once

#include "collectives/transport/launch/launch.h"
#include "parallel/plan/plan.h"

namespace lockstep {

// Returns the technique, every option of the plan and the run, the model, and the contents of the
// files that are read; for --resume only the path, because its folder may be written to meanwhile.
// Reads the data, the initial weights and the schedule as a whole. Throws Error (bad_input) naming
// a file that cannot be read.
Claims claims_of(const Plan& plan);
// The contents of the weights that adapters keep as they are, as claims name them; empty: drawn.
std::string frozen_contents(const TrainOptions& options);

}  // namespace lockstep
