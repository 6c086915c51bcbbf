// Parameter server: workers hold the model and compute gradients; servers hold the optimizer and a
// part of the parameters each. Every step a worker pushes gradients and pulls parameters.
//
//   bytes sent per step   worker  Psi * beta               a rank of N co-located: 2 (N - 1) / N *
//                         server  W / S * Psi * beta       Psi * beta, as much as a ring all-reduce
//   optimizer states      2 Psi * beta / S on a server, none on a worker
//   parameters and        Psi * beta on a worker, Psi * beta / S on a server; on a rank that is
//   gradients, each       both, Psi * beta in step, (1 + 1 / N) Psi * beta at its own pace
//
// Choose it where workers should not wait for each other (--mode asp, ssp): with few servers their
// links carry W / S times what a worker's does. Li et al., "Scaling distributed machine learning
// with the parameter server", OSDI 2014.
#pragma once

#include "parallel/technique.h"

namespace lockstep {

void check_ps(const TrainOptions& options, int ranks);
int ps_workers(const TrainOptions& options, int ranks);
std::unique_ptr<Technique> make_ps(RankContext& context, Gpt& model, const TrainOptions& options);

}  // namespace lockstep
