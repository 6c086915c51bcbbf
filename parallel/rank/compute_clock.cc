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

void ComputeClock::run(int parts, const PassWork& work, const GradientReady& ready) {
  if (part_seconds_ > 0) clock_.advance(slowdown_factor_ * parts * part_seconds_);
  if (slowdown_factor_ == 1) return work(ready);
  // Slows down gradient by gradient, so that messages in between also leave later.
  const auto computed = [&] { return clock_.now_seconds() - (waited_ ? waited_() : 0); };
  double since = computed();
  const auto fall_behind = [&] {
    clock_.advance((slowdown_factor_ - 1) * (computed() - since));
    since = computed();
  };
  work([&](int parameter) {
    fall_behind();
    if (ready) ready(parameter);
  });
  fall_behind();
}

double ComputeClock::forward_backward(const Work& work, const GradientReady& ready) {
  double loss = 0;
  run(
      3, [&](const GradientReady& finished) { loss = work(finished); }, ready);
  return loss;
}

double ComputeClock::forward_backward(Gpt& model, const Batch& batch, Count total_targets,
                                      double loss_scale, const GradientReady& ready) {
  return forward_backward(
      [&](const GradientReady& finished) {
        return model.forward_backward(batch, total_targets, finished, loss_scale);
      },
      ready);
}

}  // namespace lockstep
