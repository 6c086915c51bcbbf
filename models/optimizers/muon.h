// Muon: the matrices of hidden layers step along the orthogonal factor of their momentum, so that
// every direction of a matrix moves by the same amount. All other parameters take AdamW's steps.
// Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024; as torch.optim.Muon.
//
//   m = 0.95 m + 0.05 g        d = 0.95 m + 0.05 g                            (Nesterov)
//   w = w - rate decay w - rate sqrt(max(1, out / in)) orthogonal(d)          matrices [out, in]
//
// A matrix keeps one state for each element instead of AdamW's two. Its orthogonal factor needs all
// elements in one place.
#pragma once

#include <string_view>
#include <vector>

#include "models/optimizers/optimizer.h"

namespace lockstep {

class Muon final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  static std::vector<std::string_view> states(const OptimizerSettings&) {
    return {"first_moment", "second_moment", "momentum"};
  }
  static bool keeps(std::string_view state, const Parameter& parameter) {
    return (state == "momentum") == parameter.hidden.exist();
  }

  // Throws Error (a bug) unless each of its hidden matrices has taken its step.
  void step(double learning_rate, double gradient_scale) override;
  bool needs_whole(const Parameter& parameter) const override { return parameter.hidden.exist(); }
  void begin_matrix(std::size_t number, double gradient_scale, Slice direction) override;
  void end_matrix(std::size_t number, double learning_rate, Slice direction) override;

 private:
  Count stepped_ = 0;  // elements of hidden matrices, since the last step
};

}  // namespace lockstep
