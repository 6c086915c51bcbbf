// The time that a rank's own computing takes: the real time, times the slowdown factor of a straggler
// (--slow-rank). Under the clock `unit` computing takes no time, and --compute-time sets it.
#pragma once

#include <functional>

#include "collectives/communicator.h"
#include "models/gpt/gpt.h"
#include "parallel/plan/options.h"

namespace lockstep {

class ComputeClock {
 public:
  // `waited()` returns the seconds that the work has spent waiting for other ranks, which a slowdown
  // factor must not stretch.
  using Seconds = std::function<double()>;
  // `stages` is the number of stages on this rank. The unit, a part, is one third of a stage's
  // forward and backward work on a micro-batch.
  ComputeClock(Communicator& world, const TrainOptions& options, Seconds waited = {},
               int stages = 1);

  // Runs work(ready), which consists of `parts` parts: forward 1, backward 2. The work calls
  // `ready` for each parameter whose gradient is finished.
  using PassWork = std::function<void(const GradientReady& ready)>;
  void run(int parts, const PassWork& work, const GradientReady& ready = {});

  // Runs forward and backward of one micro-batch. work(ready) returns its loss and calls `ready` for
  // each parameter whose gradient is finished.
  using Work = std::function<double(const GradientReady& ready)>;
  double forward_backward(const Work& work, const GradientReady& ready = {});
  // The same for a model.
  double forward_backward(Gpt& model, const Batch& batch, Count total_targets, double loss_scale,
                          const GradientReady& ready = {});

 private:
  Transport& clock_;
  double slowdown_factor_;
  double part_seconds_;
  Seconds waited_;
};

}  // namespace lockstep
