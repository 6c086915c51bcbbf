// An optimizer as someone would add it: the folder beside this file, and the lines in plant.py.
//
//   s = s / 2 + g / (1 + |g|)        w = w - rate s
#pragma once

#include <string_view>
#include <vector>

#include "models/optimizers/optimizer.h"

namespace lockstep {

// For values of f64 in the host's memory.
class Softsign final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  static std::vector<std::string_view> states(const OptimizerSettings&) { return {"signs"}; }
  void step(double learning_rate, double gradient_scale) override;
};

}  // namespace lockstep
