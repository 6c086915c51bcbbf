// Compares what a rank got in a training with another training, and with its predictions.
#pragma once

#include "parallel/fuzz/comparison.h"
#include "parallel/fuzz/reference.h"

namespace lockstep {

using History = std::map<int, StepTaken>;  // by step

// Losses, norms, gradients, weights and validation of the same sequences; `expected` holds all of
// these steps. Rank 0 compares the whole model, the others their own values.
void compare_runs(CaseComparison& comparison, int rank, const Plan& plan, const RunOnRank& got,
                  const CaseRun& expected);
// `history`: from step 0 on; those from `first` are compared. The scales follow the rule, also across
// checkpoints.
void compare_scales(CaseComparison& comparison, const Plan& plan, const History& history,
                    int first);
void compare_overflows(CaseComparison& comparison, const History& taken,
                       const ReferenceRun& expected);
// What is not exact is an upper bound.
void compare_theory(CaseComparison& comparison, const std::vector<TheoryRecord>& theory);

}  // namespace lockstep
