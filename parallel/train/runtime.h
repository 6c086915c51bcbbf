// Runs any plan on this rank: its stages, in the order of the schedule. Its tensor-parallel ranks
// split their layers, and its data-parallel ranks replicate them. One step is
//
//   micro-batches in the order of the schedule; gradients announced as they become ready
//   gradients summed over ranks that hold parameters together, and over replicas
//   norm, and update
#pragma once

#include <memory>

#include "collectives/transport/launch/launch.h"
#include "models/backend.h"
#include "parallel/plan/plan.h"
#include "parallel/rank/training_rank.h"

namespace lockstep {

// Every rank of the world calls it. The plan and the backend must outlive it.
std::unique_ptr<TrainingRank> make_runtime(RankContext& context, const Plan& plan,
                                           Backend& backend);

}  // namespace lockstep
