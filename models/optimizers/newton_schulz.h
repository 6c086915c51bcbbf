// The orthogonal factor of a matrix, by Newton-Schulz iterations: products only, as fast as a device
// multiplies. Jordan et al., "Muon", 2024; the coefficients grow small singular values quickly, and
// end between 0.7 and 1.2 instead of at 1.
//
//   x = x / |x|, then five times with A = x x^T, of the smaller side:
//   x = 3.4445 x + (-4.7750 A + 2.0315 A A) x
//
//   products   5 (4 m n k + 2 k^3) operations for a matrix m x n with the smaller side k = min(m, n)
#pragma once

#include <span>

#include "models/backend.h"
#include "models/tensor.h"

namespace lockstep {

class NewtonSchulz {
 public:
  static constexpr int iterations = 5;
  struct Shape {
    Count rows = 0, columns = 0;
  };

  // With memory for matrices of these shapes, charged as workspace.
  NewtonSchulz(std::span<const Shape> shapes, DType dtype, Ledger& ledger);
  // The elements of that memory.
  static Count kept_elements(std::span<const Shape> shapes);

  // Replaces `matrix` by `factor` times its orthogonal factor. A matrix of zeros stays.
  void run(Backend& backend, const Matrix& matrix, double factor);

 private:
  Tensor x_, next_, square_, fourth_;
};

}  // namespace lockstep
