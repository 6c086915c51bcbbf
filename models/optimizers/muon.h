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

#include "models/optimizers/hidden_steps.h"
#include "models/optimizers/matrix_rule.h"

namespace lockstep {

class Muon final : public HiddenSteps {
 public:
  using HiddenSteps::HiddenSteps;

  static std::vector<std::string_view> states(const OptimizerSettings&) {
    return {"first_moment", "second_moment", "momentum"};
  }
  static bool keeps(std::string_view state, const Parameter& parameter) {
    return (state == "momentum") == parameter.hidden.exist();
  }
  // Orthogonal factors of a parameter's matrices.
  static const MatrixRuleEntry rule;

 private:
  void direct(const Part& part, double gradient_scale, Slice direction) override;
  double relative_rate() const override { return options_.muon_rate; }
};

}  // namespace lockstep
