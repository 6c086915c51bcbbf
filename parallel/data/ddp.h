// Distributed data parallel: every replica holds all parameters and computes its share of the
// batch. Gradients are all-reduced in buckets, overlapped with backward.
//
//   bytes sent per rank and step   2 (P - 1) / P * Psi * beta      Psi parameters of beta bytes, P
//                                                                  replicas; whatever the buckets
//   memory                         as on one rank: nothing is sharded
//
// Choose it first: it is the fastest while the model fits on one rank. Li et al., "PyTorch
// Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
#pragma once

#include <string>
#include <vector>

#include "parallel/plan/terms.h"
#include "parallel/rank/strategy.h"

namespace lockstep {

std::unique_ptr<DataParallel> make_ddp(RankContext& context, Communicator& replicas,
                                       const Plan& plan, Parameters& parameters, Backend& backend);

// A rank's traffic for the gradients of these parameters in a step, and its memory for communication:
// the largest bucket, if it is rounded to another type, and, at `moment`, the scratch of the
// algorithms. These are chosen by `auto`, as `facts` says, or the plan's. Traffic is unknown if one of
// them belongs to a library, so that its messages are invisible here, or is not chosen yet.
Terms ddp_terms(const Plan& plan, const ReplicaGroup& replicas, const Parameters& parameters,
                const ReplicaFacts& facts, Moment moment);

}  // namespace lockstep
