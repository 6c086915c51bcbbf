// What judges the puzzles of lessons' pages: runs of the program's own ring, and of ranks that send and
// receive in a given order. A page computes the same (lessons/play_formulas.js); a test compares both.
#pragma once

#include "cli/lessons/formula_values.h"

namespace lockstep {

// Of ring reduce-scatter among `ranks`, after `message` messages: the ranks whose data are in `chunk` of
// `rank` (as bits, and how many), and the chunk that `rank` sends next. `rank` and `chunk` wrap around.
OptionalValues ring_trip_values(const FormulaValues& x);

// Rounds until each of `ranks` has sent to its right neighbour and received from its left one, if a send
// waits for its receive. Bit r of `order`: rank r sends first. Empty if they wait for each other.
OptionalValues waiting_sends_values(const FormulaValues& x);

}  // namespace lockstep
