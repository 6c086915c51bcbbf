#include "models/optimizers/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep {

namespace {

struct Largest {
  Count whole = 0, side = 0;
};

Largest largest_of(std::span<const NewtonSchulz::Shape> shapes) {
  Largest largest;
  for (const auto& [rows, columns] : shapes) {
    largest.whole = std::max(largest.whole, rows * columns);
    largest.side = std::max(largest.side, std::min(rows, columns));
  }
  return largest;
}

}  // namespace

NewtonSchulz::NewtonSchulz(std::span<const Shape> shapes, DType dtype, Ledger& ledger) {
  const auto [whole, side] = largest_of(shapes);
  const auto room = [&](Count elements) {
    return Tensor({elements}, dtype, ledger, MemoryUse::workspace);
  };
  x_ = room(whole), next_ = room(whole), square_ = room(side * side), fourth_ = room(side * side);
}

Count NewtonSchulz::kept_elements(std::span<const Shape> shapes) {
  const auto [whole, side] = largest_of(shapes);
  return 2 * whole + 2 * side * side;
}

void NewtonSchulz::run(Backend& backend, const Matrix& matrix, double factor) {
  const Count m = matrix.rows, n = matrix.columns, k = std::min(m, n);
  const auto room = [](const Tensor& tensor, Count rows, Count columns) {
    return Matrix(tensor.slice().first(rows * columns), rows, columns);
  };
  Matrix x = room(x_, m, n), next = room(next_, m, n);
  const Matrix square = room(square_, k, k), fourth = room(fourth_, k, k), none({}, 0, 0);
  const auto scale = [&](const Matrix& out, double by, const Matrix& of) {
    backend.axpby(out, by, of, 0, none);
  };
  scale(x, 1, matrix);
  const double norm = std::sqrt(backend.squared_norm(x.slice));
  scale(x, 1 / std::max(norm, 1e-7), x);
  for (int i = 0; i < iterations; ++i) {
    if (m <= n)
      backend.gemm(x, x.t(), square, 0);
    else
      backend.gemm(x.t(), x, square, 0);
    backend.gemm(square, square, fourth, 0);
    backend.axpby(square, -4.7750, square, 2.0315, fourth);
    scale(next, 3.4445, x);
    if (m <= n)
      backend.gemm(square, x, next, 1);
    else
      backend.gemm(x, square, next, 1);
    std::swap(x, next);
  }
  scale(matrix, factor, x);
}

}  // namespace lockstep
