// Adapters added to the weights that they were trained with: W + s (B A)^T, for programs that know no
// adapters. The weights and the adapters stay as they are: to take the sum apart again would not give
// the same bits.
#pragma once

#include <string>

#include "collectives/base/dtype.h"
#include "models/gpt_config.h"

namespace lockstep {

// Writes the sum, computed in f64, as one safetensors file with config.json next to it. `init` are
// weights of the model, `adapters` a folder that peft or --save-adapters has written. Throws Error
// (bad_input) naming the file that does not fit.
void merge_adapters(const GptConfig& model, const std::string& init, const std::string& adapters,
                    const std::string& path, DType dtype);

}  // namespace lockstep
