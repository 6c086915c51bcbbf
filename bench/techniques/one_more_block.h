// What one more block of each stage adds to a step. Two simulated steps, of a model and of the same
// model with one more block, differ by it: whatever the ends of a step do, they do in both. Next to it
// stands the closed form, for the step of a single micro-batch that lies in tp and dp alone.
//
//   c = 2 b psi / F         a rank's forward pass: b rows through psi elements of matrices
//   compute = 3 c           the backward pass computes two products for each of forward
//   tp = t(layers)          nothing overlaps with these all-reduces
//   dp = t(parameters) + t(gradients)                            without overlap
//   dp = max(0, t(parameters) / 2 - c)                           forward: gathered one block ahead
//      + max(0, t(parameters) / 2 + t(gradients) - 2 c)          backward
//
// F is the rank's rate, and t(label) the time of the messages with this label in the plan's theory:
// alpha each, and beta for each byte. Without sharding t(parameters) is 0.
#pragma once

#include <optional>

#include "bench/techniques/factorings.h"
#include "parallel/plan/plan.h"

namespace lockstep {

// The options and ranks of `plan`, with a model of one more block in each stage. Throws like plan_of().
Plan with_one_more_block(const Plan& plan, const FactoringBenchOptions& options);

// The closed form of rank 0: none if other axes have ranks, or the plan has an option that it does
// not know, or if operations other than products take time.
std::optional<StepParts> expected_parts_of_block(const Plan& plan, const Plan& longer,
                                                 const FactoringBenchOptions& options);

}  // namespace lockstep
