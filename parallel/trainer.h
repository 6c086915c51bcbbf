// The training loop: data, model, technique, optimizer step, results. The same for every technique.
#pragma once

#include <functional>

#include "collectives/transport/launch.h"
#include "parallel/options.h"
#include "parallel/result.h"

namespace lockstep {

// Called on rank 0 after each step.
using OnStep = std::function<void(const StepRecord&)>;

// Trains on this rank together with the others of the world. Rank 0 returns the results of all
// ranks, saves the weights and samples; the others return an empty result. Throws Error: bad_input
// for files that do not fit, wrong_result when the loss is no longer finite.
TrainResult train(RankContext& context, const TrainOptions& options, const OnStep& on_step = {});

}  // namespace lockstep
