// The training loop: data, technique, optimizer step, results. It is the same for every technique
// whose ranks take their steps together.
#pragma once

#include "parallel/rank/training.h"

namespace lockstep {

// The plan on this rank: serial, the runtime, or a worker or server in step with the others. All
// arguments must outlive it.
std::unique_ptr<TrainingRank> make_rank(RankContext& context, const Plan& plan, Backend& backend);

// Watches a training run from within; each rank has its own watch. Its messages and allocations are
// not measured.
class TrainingWatch {
 public:
  virtual ~TrainingWatch() = default;
  // The gradients of a step that is not skipped are complete, and the weights are those before it.
  virtual void on_gradients(TrainingRank& rank, const StepRecord& step) = 0;
  // A step has ended. Its loss is that of all ranks.
  virtual void after_step(const StepRecord& step) = 0;
  // Called after the last step, with what was counted in the last one that was not skipped, and its
  // prediction.
  virtual void at_end(TrainingRank& rank, const CountedStep& counted,
                      const Prediction& prediction) = 0;
};

// Trains on this rank together with the others of the world. Rank 0 returns the results of all
// ranks, saves the weights and samples; the others return an empty result. Throws Error: bad_input
// if files do not fit, wrong_result if the loss is no longer finite.
// `watch` may be null; workers that take their steps alone have none.
TrainResult train(RankContext& context, const Plan& plan, const OnStep& on_step = {},
                  TrainingWatch* watch = nullptr);

}  // namespace lockstep
