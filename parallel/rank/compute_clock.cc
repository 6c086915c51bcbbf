#include "parallel/rank/compute_clock.h"

#include <utility>

namespace lockstep {

ComputeClock::ComputeClock(Communicator& world, const TrainOptions& options, Seconds waited,
                           int stages)
    : clock_(world.transport()),
      slowdown_factor_(
          options.slow_ranks.contains(world.rank()) ? options.slow_ranks.at(world.rank()) : 1),
      part_seconds_(options.compute_seconds / (3.0 * options.micro_batches * stages)),
      waited_(std::move(waited)) {}

double ComputeClock::computed_seconds() const {
  return clock_.now_seconds() - (waited_ ? waited_() : 0);
}

void ComputeClock::run(int parts, const std::function<void()>& work) {
  if (part_seconds_ > 0) clock_.advance(slowdown_factor_ * parts * part_seconds_);
  if (slowdown_factor_ == 1) return work();
  slowed_until_ = computed_seconds();
  work();
  fall_behind();
}

void ComputeClock::fall_behind() {
  if (slowdown_factor_ == 1) return;
  clock_.advance((slowdown_factor_ - 1) * (computed_seconds() - slowed_until_));
  slowed_until_ = computed_seconds();
}

double ComputeClock::forward_backward(Gpt& model, const Batch& batch, Count total_targets,
                                      double loss_scale) {
  double loss = 0;
  run(3, [&] { loss = model.forward_backward(batch, total_targets, loss_scale); });
  return loss;
}

}  // namespace lockstep
