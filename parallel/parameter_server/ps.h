// Parameter server: workers hold the model and compute gradients; each server holds a part of the
// parameters and their optimizer. In every step a worker pushes gradients and pulls parameters.
//
//                          worker        server              a rank that is both, of N
//   bytes sent per step    Psi * beta    W / S * Psi * beta  2 (N - 1) / N * Psi * beta
//   optimizer states       none          2 Psi * beta / S    2 Psi * beta / N
//   parameters, gradients  Psi * beta    Psi * beta / S      Psi * beta; (1 + 1 / N) Psi * beta
//   (each)                                                   if workers are asynchronous
//
// W workers, S servers, Psi parameters of beta bytes. N ranks that are both send as much as in a
// ring all-reduce.
//
// Choose it if workers should not wait for each other (--mode asp, ssp). With few servers, their
// links carry W / S times as much as a worker's. Li et al., "Scaling distributed machine learning
// with the parameter server", OSDI 2014.
#pragma once

#include <memory>

#include "collectives/transport/launch/launch.h"
#include "models/backend.h"
#include "parallel/plan/plan.h"
#include "parallel/rank/training_rank.h"

namespace lockstep {

// Bulk synchronous: all workers take every step together. The servers wait for all pushes, sum them
// in a fixed order, and answer. The result equals serial training.
std::unique_ptr<TrainingRank> make_synchronous_ps(RankContext& context, const Plan& plan,
                                                  Backend& backend);

}  // namespace lockstep
