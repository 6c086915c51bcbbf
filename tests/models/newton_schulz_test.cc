// Newton-Schulz iterations against the scalar polynomial that they apply to singular values.
#include "models/optimizers/newton_schulz.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/models/dense_matrix.h"

namespace lockstep {
namespace {

using test::Dense;
using test::furthest;
using test::product;
using test::random_matrix;
using test::transposed;

Dense orthogonalized(Dense x, double factor = 1) {
  Ledger ledger;
  const NewtonSchulz::Shape shape{x.rows, x.columns};
  NewtonSchulz newton_schulz(std::span(&shape, 1), DType::f64, ledger);
  EXPECT_EQ(ledger.bytes(MemoryUse::workspace),
            8 * NewtonSchulz::kept_elements(std::span(&shape, 1)));
  newton_schulz.run(host_backend(), {host_slice(std::span(x.values)), x.rows, x.columns}, factor);
  return x;
}

double five_times(double s) {
  for (int i = 0; i < 5; ++i) s = 3.4445 * s - 4.7750 * std::pow(s, 3) + 2.0315 * std::pow(s, 5);
  return s;
}

// Of a diagonal matrix, the singular values are there to see.
TEST(NewtonSchulz, AppliesThePolynomialToSingularValues) {
  const std::vector<double> diagonal = {3, 0.5, 0.01, 2};
  const double norm = std::sqrt(9 + 0.25 + 0.0001 + 4);
  for (const auto& [rows, columns] : {std::pair<Count, Count>{4, 4}, {4, 7}, {9, 4}}) {
    Dense x(rows, columns);
    for (Count i = 0; i < 4; ++i) x.at(i, i) = diagonal[static_cast<std::size_t>(i)];
    const Dense made = orthogonalized(x, 1.5);
    for (Count i = 0; i < rows; ++i)
      for (Count j = 0; j < columns; ++j)
        EXPECT_NEAR(made.at(i, j), i == j ? 1.5 * five_times(x.at(i, i) / norm) : 0, 1e-13);
  }
}

// It commutes with rotations, and a matrix and its transpose have the same factor.
TEST(NewtonSchulz, TurnsWithTheMatrix) {
  const double angle = 0.7;
  Dense rotation(5, 5);
  for (Count i = 0; i < 5; ++i) rotation.at(i, i) = 1;
  rotation.at(1, 1) = rotation.at(3, 3) = std::cos(angle);
  rotation.at(1, 3) = -std::sin(angle);
  rotation.at(3, 1) = std::sin(angle);
  for (const Count columns : {3, 5, 8}) {
    const Dense x = random_matrix(5, columns, 1);
    const Dense made = orthogonalized(x);
    EXPECT_LT(furthest(orthogonalized(product(rotation, x)), product(rotation, made)), 1e-12);
    EXPECT_LT(furthest(orthogonalized(transposed(x)), transposed(made)), 1e-12);
    // Nearly orthogonal: x x^T, of the smaller side, is near to the identity.
    const Dense square =
        columns < 5 ? product(transposed(made), made) : product(made, transposed(made));
    for (Count i = 0; i < square.rows; ++i) EXPECT_NEAR(square.at(i, i), 1, 0.55);
  }
}

TEST(NewtonSchulz, LeavesZerosAndOtherColumnsAlone) {
  for (const double value : orthogonalized(Dense(3, 4)).values) EXPECT_EQ(value, 0);
  // Columns 1 to 3 of a wider matrix.
  Dense wide = random_matrix(4, 6, 2), part(4, 3);
  for (Count i = 0; i < 4; ++i)
    for (Count j = 0; j < 3; ++j) part.at(i, j) = wide.at(i, j + 1);
  const Dense expected = orthogonalized(part), before = wide;
  Ledger ledger;
  const NewtonSchulz::Shape shape{4, 3};
  NewtonSchulz newton_schulz(std::span(&shape, 1), DType::f64, ledger);
  newton_schulz.run(host_backend(),
                    Matrix(host_slice(std::span(wide.values)), 4, 6).columns_from(1, 3), 1);
  for (Count i = 0; i < 4; ++i)
    for (Count j = 0; j < 6; ++j)
      EXPECT_EQ(wide.at(i, j), j >= 1 && j < 4 ? expected.at(i, j - 1) : before.at(i, j));
}

}  // namespace
}  // namespace lockstep
