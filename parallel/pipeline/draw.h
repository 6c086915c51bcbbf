// A simulated schedule as lines of characters, one for each rank.
#pragma once

#include <string>

#include "parallel/pipeline/simulate.h"

namespace lockstep {

// Time goes to the right, in at most `width` characters: "F3" begins the forward pass of
// micro-batch 3, dots are idle. Where a number has no room the letter stands alone. `in_color` with
// the escapes of a terminal.
std::string chart_of(const Timeline& timeline, int width, bool in_color);

}  // namespace lockstep
