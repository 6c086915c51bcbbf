// A model's weights in and out, under the names that Hugging Face's GPT-2 has.
#pragma once

#include <string>

#include "models/gpt_config.h"
#include "models/parameters.h"

namespace lockstep {

// Reads every parameter from a safetensors file; names may begin with "transformer.", and what
// GPT-2 files hold besides (causal-mask buffers, lm_head.weight equal to wte.weight) is passed
// over. Throws Error (bad_input) naming the tensor that is missing, unknown or of another shape.
void load_weights(const std::string& path, Parameters& parameters);

// Writes the file, and config.json beside it.
void save_weights(const std::string& path, const Parameters& parameters, const GptConfig& config);

}  // namespace lockstep
