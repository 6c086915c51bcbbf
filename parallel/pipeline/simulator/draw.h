// A simulated schedule as a text chart.
#pragma once

#include <functional>
#include <string>

#include "parallel/pipeline/simulator/simulate.h"

namespace lockstep {

// Draws one line per rank, in which time goes to the right, in at most `width` characters: "F3"
// begins the forward pass of micro-batch 3, dots are idle. If collectives take time, a second line
// shows them:
// "U2" unshards stage 2, "G2" reduces its gradients. Where a number has no room the letter stands
// alone. `in_color` adds a terminal's escape sequences.
std::string chart_of(const Timeline& timeline, int width, bool in_color);

// Returns the text of every rank; with more than a hundred ranks, only of the first and the last
// fifty, with a line that says how many are left out.
std::string text_by_rank(int ranks, const std::function<std::string(int rank)>& text_of_rank);

}  // namespace lockstep
