// What optimizers share that step hidden matrices by a rule of their own, and all other parameters by
// AdamW's.
#pragma once

#include "models/optimizers/optimizer.h"

namespace lockstep {

class HiddenSteps : public Optimizer {
 public:
  using Optimizer::Optimizer;

  // Throws Error (a bug) unless each of its hidden matrices has taken its step.
  void step(double learning_rate, double gradient_scale) final;
  bool needs_whole(const Parameter& parameter) const final { return parameter.hidden.exist(); }
  void begin_matrix(std::size_t number, double gradient_scale, Slice direction) final;
  // w = w - rate decay w - rate direction
  void end_matrix(std::size_t number, double learning_rate, Slice direction) final;

 private:
  // Fills in the direction of some of a hidden matrix's elements, and changes their states.
  virtual void direct(const Part& part, double gradient_scale, Slice direction) = 0;
  // The rate of hidden matrices, in rates of the rest.
  virtual double relative_rate() const { return 1; }

  Count stepped_ = 0;  // elements of hidden matrices, since the last step
};

}  // namespace lockstep
