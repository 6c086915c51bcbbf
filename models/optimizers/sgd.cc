#include "models/optimizers/sgd.h"

namespace lockstep {

void Sgd::step(double learning_rate, double gradient_scale) {
  step_parts([&](const Part& part) {
    backend_.sgd(part.values, part.gradients, part.states.empty() ? Slice{} : part.states[0],
                 {.learning_rate = learning_rate * part.parameter.rate,
                  .momentum = options_.momentum,
                  .weight_decay = part.parameter.decays() ? options_.weight_decay : 0,
                  .gradient_scale = gradient_scale});
  });
}

}  // namespace lockstep
