// Stochastic gradient descent with momentum, as torch.optim.SGD without dampening: weight decay is
// a part of the gradient. Sutskever et al., "On the importance of initialization and momentum in
// deep learning", 2013.
//
//   m = momentum m + g + decay w        w = w - rate m        (without momentum, m is g + decay w)
#pragma once

#include <string_view>
#include <vector>

#include "models/optimizers/optimizer.h"

namespace lockstep {

class Sgd final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  static std::vector<std::string_view> states(const OptimizerSettings& options) {
    if (options.momentum == 0) return {};
    return {"momentum"};
  }
  void step(double learning_rate, double gradient_scale) override;
};

}  // namespace lockstep
