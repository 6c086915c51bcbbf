// Whether a training goes on with the same sequences as the one that wrote a checkpoint.
#pragma once

#include <string>

#include "parallel/checkpoint/index.h"
#include "parallel/training.h"

namespace lockstep {

DataPosition data_position(const Training& training);
// Throws Error (bad_input) naming the first difference, or if the checkpoint has taken all steps.
void require_same_training(const Training& training, const CheckpointIndex& index,
                           const std::string& folder);

}  // namespace lockstep
