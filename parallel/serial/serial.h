// Serial training: one rank does everything. The reference that every technique must reproduce.
#pragma once

#include <memory>

#include "collectives/transport/launch/launch.h"
#include "models/backend.h"
#include "parallel/plan/plan.h"
#include "parallel/rank/training_rank.h"

namespace lockstep {

std::unique_ptr<TrainingRank> make_serial(RankContext& context, const Plan& plan, Backend& backend);

}  // namespace lockstep
