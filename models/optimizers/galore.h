// GaLore: the matrices of hidden layers take AdamW's step in a subspace of r directions, which are the
// first singular vectors of the gradient, computed anew every `period` steps. All other parameters
// take AdamW's steps. Zhao et al., "GaLore", 2024; as its repository.
//
//   R = P^T G  or  G Q^T  or  P^T G Q^T          matrices G [in, out], P [in, r], Q [r, out]
//   N = AdamW's direction for R
//   w = w - rate decay w - rate scale (P N  or  N Q  or  P N Q)
//
//   projection    projected           numbers kept, of a matrix m x n
//   std           the smaller side    r (min + 2 max)      inputs if the sides are equal
//   reverse_std   the larger side     r (max + 2 min)      outputs if the sides are equal
//   left          outputs
//   right         inputs
//   full          both                r (m + n + 2 r)
//   (AdamW                            2 m n)
//
// Gradients are clipped by the norm of G, and the bias corrections count all steps of the run.
// left and right count as if weights were [out, in]. Sides are those of the whole matrix, queries, keys
// and values as one. When the subspace changes, the moments stay as they are. A gradient of zeros has
// no directions: then there is no step but the decay until the next period begins.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/optimizers/hidden_steps.h"
#include "models/optimizers/matrix_rule.h"

namespace lockstep {

// A matrix [in, out], and what is projected of it.
struct ProjectedMatrix {
  Count rows, columns, rank;
  bool inputs, outputs;

  ProjectedMatrix(const ProjectionSettings& settings, const HiddenMatrices& hidden);
  // The shape of R.
  Count small_rows() const { return inputs ? rank : rows; }
  Count small_columns() const { return outputs ? rank : columns; }
  Count small() const { return small_rows() * small_columns(); }
  // Elements of a matrix that has one of two sides projected so far.
  Count half() const { return inputs && outputs ? rows * rank : 0; }
};

// P [in, r] and Q [r, out] of a matrix, in memory; empty if that side is not projected.
struct Projectors {
  Slice inputs = {}, outputs = {};
};

class Galore final : public HiddenSteps {
 public:
  using HiddenSteps::HiddenSteps;

  static std::vector<std::string_view> states(const OptimizerSettings&) {
    return {"first_moment", "second_moment"};
  }
  static bool keeps(std::string_view state, const Parameter& parameter) {
    return !parameter.hidden.exist() && (state == "first_moment" || state == "second_moment");
  }
  static std::vector<std::string> projections();
  // The largest rank that all these matrices have; 0 if there are none.
  static Count largest_rank(std::span<const Parameter> list);
  static const MatrixRuleEntry rule;
  // Among the states of a matrix. They are zeros before its first step.
  static Projectors projectors(std::span<const MatrixRule::Held> states, std::size_t matrix);

 private:
  // The gradient.
  void direct(const Part& part, double gradient_scale, Slice direction) override;
};

}  // namespace lockstep
