// Which activations a layer computes again in its backward pass.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

// What a forward pass keeps for backward: everything; everything except the attention's output,
// which is recomputed; or only every block's input. Korthikanti et al., "Reducing activation
// recomputation in large transformer models", 2022.
enum class Recompute : std::uint8_t { none, selective, full };
// Throws Error (bad_input) that lists the names.
Recompute recompute_from_name(std::string_view name);

}  // namespace lockstep
