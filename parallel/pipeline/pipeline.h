// Pipeline parallelism: the model's layers in stages, one or more on every rank, and a step's
// micro-batches through them in the order of a schedule.
//
//   sent by a rank, per step    tokens * C * beta for every boundary of its stages to another rank,
//                               there and back; V * C gradients of the tied embedding between the
//                               ranks of the first and the last stage; a scalar for the norm
//   activations held            as many stashes as the schedule has in flight (stashes.h)
//
// Huang et al., "GPipe", 2019; Narayanan et al., "PipeDream", 2019, and what the schedules name.
#pragma once

#include <memory>

#include "parallel/technique.h"

namespace lockstep {

void check_pipeline(const TrainOptions& options, int ranks);
std::unique_ptr<Technique> make_pipeline(RankContext& context, Gpt& model,
                                         const TrainOptions& options);

}  // namespace lockstep
