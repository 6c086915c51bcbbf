// Rules for the order in which a rank sends and gathers, however it was computed: execution and
// predictions share it, so comparing them cannot show that it is wrong.
#pragma once

#include "parallel/fuzz/comparison.h"
#include "parallel/plan/plan.h"

namespace lockstep {

// Buckets: each gradient is in one; a bucket has reached its limit, but not before its last tensor.
// Gathered blocks: never more at a time than --limit-all-gathers; each is gathered before it is used
// and freed after it.
void check_invariants(CaseComparison& comparison, const Plan& plan, int rank);

}  // namespace lockstep
