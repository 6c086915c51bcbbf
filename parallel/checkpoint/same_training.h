// Whether a run reads the same sequences as the run that wrote a checkpoint.
#pragma once

#include <string>

#include "parallel/checkpoint/index.h"
#include "parallel/rank/training.h"

namespace lockstep {

DataPosition data_position(const Training& training);
// Throws Error (bad_input) naming the first difference, or if all steps were taken before the
// checkpoint.
void require_same_training(const Training& training, const CheckpointIndex& index,
                           const std::string& folder);

}  // namespace lockstep
