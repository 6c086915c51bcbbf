// What the division of experts states for a rank. Of a layer and a micro-batch, P ranks, rank r sends
// n(r, q) rows of C elements to the experts of rank q:
//
//   expert counts       (P - 1) E / P * 8 bytes
//   dispatch forward    C beta * sum over q != r of n(r, q)
//   combine forward     C beta * sum over q != r of n(q, r)
//   combine backward    as dispatch forward
//   dispatch backward   as combine forward
//
// in P - 1 messages each; the two of forward once more if the layer is computed again. A rank has
// memory for P N min(K, E / P) rows, or for P times the capacity of its experts if that is less,
// whatever the routers choose.
//
// If t tensor-parallel ranks split its experts, and rank i of these got c(i) rows, S in all, then in each
// direction:
//
//   split experts    C beta (S - c(i + 1)) to gather them, C beta (S - c(i)) to scatter the sums; or, if
//                    all have the same rows, an all-reduce: C beta 2 (t - 1) / t c
//   expert counts    and to gather those, (t - 1) E 8 bytes
//
// Then memory is for t times as many rows, N being a rank's own tokens.
#pragma once

#include "parallel/plan/environment.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/terms.h"

namespace lockstep {

// For a rank whose stages have so many layers with experts. `dispatched` are the rows of all layers and
// micro-batches of a step; empty: each rank's tokens choose all experts in turn.
Terms expert_terms(const Plan& plan, int rank, int layers,
                   const std::vector<DispatchedRows>& dispatched);

}  // namespace lockstep
