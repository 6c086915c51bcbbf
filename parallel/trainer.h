// The training loop: data, technique, optimizer step, results. It is the same for every technique
// whose ranks take their steps together.
#pragma once

#include "parallel/training.h"

namespace lockstep {

// The plan on this rank: serial, the runtime, or a worker or server in step with the others. All
// arguments must outlive it.
std::unique_ptr<TrainingRank> make_rank(RankContext& context, const Plan& plan, Backend& backend);

// Trains on this rank together with the others of the world. Rank 0 returns the results of all
// ranks, saves the weights and samples; the others return an empty result. Throws Error: bad_input
// if files do not fit, wrong_result if the loss is no longer finite.
TrainResult train(RankContext& context, const Plan& plan, const OnStep& on_step = {});

}  // namespace lockstep
