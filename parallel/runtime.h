// Runs any plan on this rank: its stages through the schedule, made of the layers that its
// tensor-parallel ranks split, replicated over its data-parallel ranks. One step is
//
//   micro-batches through the schedule, gradients announced as they become ready
//   gradients of what ranks hold together are added up, and those of replicas
//   norm, and update
#pragma once

#include <memory>

#include "collectives/transport/launch.h"
#include "models/backend.h"
#include "parallel/plan.h"
#include "parallel/training_rank.h"

namespace lockstep {

// Every rank of the world calls it. The plan and the backend must outlive it.
std::unique_ptr<TrainingRank> make_runtime(RankContext& context, const Plan& plan,
                                           Backend& backend);

}  // namespace lockstep
