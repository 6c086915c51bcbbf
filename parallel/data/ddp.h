// Distributed data parallel: every rank holds the whole model and computes its share of the batch;
// gradients are all-reduced in buckets while backward goes on.
//
//   bytes sent per rank and step   2 (P - 1) / P * Psi * beta      Psi parameters of beta bytes, P
//   ranks memory                         as serial: nothing is sharded
//
// Choose it first: it is the fastest as long as the model fits one rank. Li et al., "PyTorch
// Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
#pragma once

#include "parallel/technique.h"

namespace lockstep {

void check_ddp(const TrainOptions& options, int ranks);
std::unique_ptr<Technique> make_ddp(RankContext& context, Gpt& model, const TrainOptions& options);

}  // namespace lockstep
