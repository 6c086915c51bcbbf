#include "models/optimizers/hidden_steps.h"

#include <fmt/format.h>

#include <utility>

#include "collectives/base/error.h"

namespace lockstep {

void HiddenSteps::step(double learning_rate, double gradient_scale) {
  Count hidden = 0;
  step_parts([&](const Part& part) {
    if (part.parameter.hidden.exist()) {
      hidden += part.values.count;
      return;
    }
    backend_.adamw(part.values, part.gradients, part.states[0], part.states[1],
                   {.learning_rate = learning_rate,
                    .beta1 = options_.beta1,
                    .beta2 = options_.beta2,
                    .eps = options_.eps,
                    .weight_decay = part.parameter.decays() ? options_.weight_decay : 0,
                    .gradient_scale = gradient_scale,
                    .step = steps_});
  });
  if (std::exchange(stepped_, 0) != hidden)
    throw Error(ErrorKind::wrong_result,
                fmt::format("not all hidden matrices have taken a step of {}", options_.name),
                {.hint = "this is a bug in Lockstep; please report it"});
}

void HiddenSteps::begin_matrix(std::size_t number, double gradient_scale, Slice direction) {
  step_part(number, [&](const Part& part) { direct(part, gradient_scale, direction); });
}

void HiddenSteps::end_matrix(std::size_t number, double learning_rate, Slice direction) {
  const double rate = learning_rate * relative_rate();
  step_part(number, [&](const Part& part) {
    const auto row = [](Slice slice) { return Matrix(slice, 1, slice.count); };
    backend_.axpby(row(part.values), 1 - rate * options_.weight_decay, row(part.values), -rate,
                   row(direction));
    stepped_ += part.values.count;
  });
}

}  // namespace lockstep
