// The step that replicas take together after each has taken its own: stochastic gradient descent with Nesterov's
// momentum, whose gradient is how far the replicas have gone, on average (DiLoCo).
//
//   d = mean of (w - w of the replica)      m = momentum m + d      w = w - rate (d + momentum m)
//
// With momentum 0 there is no m, and with rate 1 w becomes the mean of the replicas' weights. As torch.optim.SGD
// with nesterov=True. Sutskever et al., "On the importance of initialization and momentum in deep learning", 2013.
#pragma once

#include "models/optimizers/optimizers.h"
#include "parallel/plan/options.h"

namespace lockstep {

class OuterOptimizer final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  // The gradients are sums of differences; `gradient_scale` makes them means.
  void step(double rate, double gradient_scale) override;
};

// Its states by name and number: those of SGD.
OptimizerSettings outer_settings(const TrainOptions& options);
// The optimizer whose states all replicas have: this one, if they take their steps alone.
OptimizerSettings shared_settings(const TrainOptions& options);

}  // namespace lockstep
