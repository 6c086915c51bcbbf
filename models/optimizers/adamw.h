// AdamW: Adam with a weight decay of its own. Loshchilov and Hutter, "Decoupled weight decay
// regularization", 2019.
#pragma once

#include <string_view>
#include <vector>

#include "models/optimizers/optimizer.h"

namespace lockstep {

class AdamW final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  static std::vector<std::string_view> states(const OptimizerSettings&) {
    return {"first_moment", "second_moment"};
  }
  void step(double learning_rate, double gradient_scale) override;
};

}  // namespace lockstep
