#include "parallel/data/outer_optimizer.h"

namespace lockstep {

void OuterOptimizer::step(double rate, double gradient_scale) {
  step_parts([&](const Part& part) {
    const auto row = [](Slice slice) { return Matrix(slice, 1, slice.count); };
    const Matrix values = row(part.values), sums = row(part.gradients);
    backend_.axpby(values, 1, values, -rate * gradient_scale, sums);
    if (part.states.empty()) return;
    const Matrix momentum = row(part.states[0]);
    backend_.axpby(momentum, options_.momentum, momentum, gradient_scale, sums);
    backend_.axpby(values, 1, values, -rate * options_.momentum, momentum);
  });
}

OptimizerSettings outer_settings(const TrainOptions& options) {
  return {.name = "sgd", .weight_decay = 0, .momentum = options.outer_momentum};
}

OptimizerSettings shared_settings(const TrainOptions& options) {
  return options.local_steps ? outer_settings(options) : optimizer_settings(options);
}

}  // namespace lockstep
