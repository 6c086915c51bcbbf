// Text from a byte-level model.
#pragma once

#include <cstdint>
#include <string>

#include "models/gpt/gpt.h"

namespace lockstep {

// Throws Error (bad_input) if the prompt is empty or has a byte beyond the vocabulary: a check before
// a long run.
void check_prompt(const std::string& prompt, int vocabulary);

// `prompt` followed by `tokens` bytes, each drawn from the model's distribution at `temperature` > 0.
// Bytes that are neither printable nor line ends are shown as \xNN.
std::string sample_text(Gpt& model, const std::string& prompt, int tokens, double temperature,
                        std::uint64_t seed);

}  // namespace lockstep
