#include "tests/parallel/toy_optimizer/softsign.h"

#include <cmath>

namespace lockstep {

void Softsign::step(double learning_rate, double gradient_scale) {
  step_parts([&](const Part& part) {
    const auto values = host_span<double>(part.values), signs = host_span<double>(part.states[0]);
    const auto gradients = host_span<const double>(part.gradients);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double g = gradients[i] * gradient_scale;
      signs[i] = signs[i] / 2 + g / (1 + std::abs(g));
      values[i] -= learning_rate * signs[i];
    }
  });
}

}  // namespace lockstep
