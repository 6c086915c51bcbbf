// How long a rank's own computing takes: as long as it does, or longer by the factor of
// --slow-rank; under the clock `unit`, where computing takes no time, what --compute-time says.
#pragma once

#include <functional>

#include "collectives/communicator.h"
#include "models/gpt.h"
#include "parallel/options.h"

namespace lockstep {

class Pace {
 public:
  // Where the work itself waits for other ranks, waited() is for how many seconds it has so far:
  // waiting takes no longer on a slow rank.
  using Seconds = std::function<double()>;
  // `stages` are on this rank: a third of one's work on a micro-batch is a part.
  Pace(Communicator& world, const TrainOptions& options, Seconds waited = {}, int stages = 1);

  // Runs work(ready), which is `parts` of a rank's step: forward 1, backward 2. The work calls
  // `ready` for each parameter whose gradient is finished.
  using Pass = std::function<void(const GradientReady& ready)>;
  void take(int parts, const Pass& work, const GradientReady& ready = {});

  // Forward and backward of one micro-batch: work(ready) returns its loss and calls `ready` for
  // each parameter whose gradient is finished.
  using Work = std::function<double(const GradientReady& ready)>;
  double forward_backward(const Work& work, const GradientReady& ready = {});
  // That of the model.
  double forward_backward(Gpt& model, const Batch& batch, Count total_targets, double loss_scale,
                          const GradientReady& ready = {});

 private:
  Transport& clock_;
  double factor_;
  double part_seconds_;
  Seconds waited_;
};

}  // namespace lockstep
