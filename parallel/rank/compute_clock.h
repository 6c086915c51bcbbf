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

  // Runs work(), which consists of `parts` parts: forward 1, backward 2.
  void run(int parts, const std::function<void()>& work);
  // To call inside of run() before a message leaves: slows down the work so far, so that a
  // straggler's message leaves later too.
  void fall_behind();

  // Runs forward and backward of one micro-batch.
  double forward_backward(Gpt& model, const Batch& batch, Count total_targets, double loss_scale);

 private:
  double computed_seconds() const;

  Transport& clock_;
  double slowdown_factor_;
  double part_seconds_;
  Seconds waited_;
  double slowed_until_ = 0;  // in seconds of computing
};

}  // namespace lockstep
