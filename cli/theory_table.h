// The closed forms of a run next to its measurements, as a table.
#pragma once

#include <vector>

#include "parallel/plan/result.h"

namespace lockstep {

// Sorted by quantity. All ranks with the same numbers share one line.
void print_theory(const std::vector<TheoryRecord>& theory);

// Throws Error (wrong_result) if a measured quantity differs from its exact closed form.
void require_theory_holds(const TrainResult& result);

}  // namespace lockstep
