// Converts checkpoints, and exports their weights.
#pragma once

#include <string>

#include "parallel/checkpoint/index.h"

namespace lockstep {

// Writes the same checkpoint to the folder `output`, divided evenly over `files` files, its states
// in `dtype` (f32 or f64). Throws Error (bad_input) if `output` cannot be written or exists, if
// another process writes there, or if the checkpoint is damaged; then it leaves nothing behind.
void convert_checkpoint(const std::string& folder, const CheckpointIndex& index,
                        const std::string& output, int files, DType dtype);

// Writes the weights as one safetensors file with config.json next to it, as Hugging Face's GPT-2
// reads them. Throws Error (bad_input) like convert_checkpoint.
void export_weights(const std::string& folder, const CheckpointIndex& index,
                    const std::string& path, DType dtype);

}  // namespace lockstep
