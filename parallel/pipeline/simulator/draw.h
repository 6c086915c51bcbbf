// A simulated schedule as a text chart.
#pragma once

#include <string>

#include "parallel/pipeline/simulator/simulate.h"

namespace lockstep {

// A line per rank, in which time goes to the right, in at most `width` characters: "F3" begins the
// forward pass of micro-batch 3, dots are idle. If collectives take time, a second line shows them:
// "U2" unshards stage 2, "G2" reduces its gradients. Where a number has no room the letter stands
// alone. `in_color` adds a terminal's escape sequences.
std::string chart_of(const Timeline& timeline, int width, bool in_color);

}  // namespace lockstep
