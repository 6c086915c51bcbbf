// Compares a rank's results with those of another run, and with its predictions.
#pragma once

#include "parallel/fuzz/comparison.h"
#include "parallel/fuzz/reference.h"

namespace lockstep {

using History = std::map<int, StepTaken>;  // by step

// Compares losses, norms, gradients, weights and validation of the same sequences; `expected` holds
// all of these steps. `rounded` holds them as one rank computes them in the other one of two types, and so
// says what rounding does to losses and norms; it may be `expected`. Rank 0 compares the whole model,
// the others their own values.
void compare_runs(CaseComparison& comparison, int rank, const Plan& plan, const RunOnRank& got,
                  const CaseRun& expected, const CaseRun& rounded);
// Compares compressed gradients with exact ones for the same weights: where a method keeps what it leaves out, all
// of both since the first step, and what is kept after the last one (`kept`), make up the difference.
void compare_compressed(CaseComparison& comparison, const Plan& plan, const Values& kept,
                        const ReferenceRun& expected);
// Checks that the scales follow the rule, also across checkpoints. `history`: all steps from 0 on;
// those from `first` on are compared.
void compare_scales(CaseComparison& comparison, const Plan& plan, const History& history,
                    int first);
void compare_overflows(CaseComparison& comparison, const History& taken,
                       const ReferenceRun& expected);
// Compares the traffic under every label, also under one that has no closed form.
void compare_traffic(CaseComparison& comparison, const CountedStep& counted,
                     const Prediction& prediction);
// Compares counts with closed forms; a form that is not exact is an upper bound.
void compare_theory(CaseComparison& comparison, const std::vector<TheoryRecord>& theory);

}  // namespace lockstep
