// Singular vectors of matrices that are made of known ones.
#include "models/ops/singular_vectors.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/models/dense_matrix.h"

namespace lockstep {
namespace {

using test::Dense;

struct Vectors {
  Dense left, right;
};

Vectors vectors_of(const Dense& x, Count rank) {
  std::vector<double> scratch(static_cast<std::size_t>(singular_scratch(x.rows, x.columns)));
  Vectors found{Dense(x.rows, rank), Dense(rank, x.columns)};
  singular_vectors(x.values.data(), x.columns, x.rows, x.columns, rank, found.left.values.data(),
                   found.right.values.data(), scratch.data());
  return found;
}

// Vectors with lengths 3, 2, 1, 0.5 ...: the signs of their smaller side as promised.
struct Known {
  Dense left, right, sigma, matrix;

  Known(Count rows, Count columns, unsigned seed)
      : left(test::orthonormal(rows, std::min(rows, columns), seed)),
        right(test::transposed(test::orthonormal(columns, std::min(rows, columns), seed + 1))),
        sigma(left.columns, left.columns),
        matrix(rows, columns) {
    for (Count r = 0; r < left.columns; ++r) {
      sigma.at(r, r) = 3.0 / static_cast<double>(1 + r);
      const Count side = std::min(rows, columns);
      double peak = 0;
      for (Count i = 0; i < side; ++i) {
        const double here = rows >= columns ? right.at(r, i) : left.at(i, r);
        if (std::abs(here) > std::abs(peak)) peak = here;
      }
      if (peak > 0) continue;
      for (Count i = 0; i < rows; ++i) left.at(i, r) *= -1;
      for (Count i = 0; i < columns; ++i) right.at(r, i) *= -1;
    }
    matrix = test::product(test::product(left, sigma), right);
  }
};

constexpr std::pair<Count, Count> shapes[] = {{1, 1}, {4, 4},  {7, 3},   {3, 7},  {1, 6},
                                              {6, 1}, {16, 9}, {33, 40}, {64, 48}};

TEST(SingularVectors, AreThoseThatTheMatrixIsMadeOf) {
  for (const auto& [rows, columns] : shapes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
    const Known known(rows, columns, 5);
    const Count all = std::min(rows, columns);
    for (const Count rank : {Count{1}, (all + 1) / 2, all}) {
      const Vectors found = vectors_of(known.matrix, rank);
      for (Count r = 0; r < rank; ++r) {
        for (Count i = 0; i < rows; ++i)
          ASSERT_NEAR(found.left.at(i, r), known.left.at(i, r), 1e-12) << r << ", " << i;
        for (Count i = 0; i < columns; ++i)
          ASSERT_NEAR(found.right.at(r, i), known.right.at(r, i), 1e-12) << r << ", " << i;
      }
    }
  }
}

// What a projection leaves is the sum of the other squared singular values; nothing with all vectors.
TEST(SingularVectors, LeaveTheOtherSingularValues) {
  for (const auto& [rows, columns] : shapes)
    for (Count rank = 1; rank <= std::min(rows, columns); ++rank) {
      const Known known(rows, columns, 8);
      const Vectors found = vectors_of(known.matrix, rank);
      const Dense by_left =
          test::product(found.left, test::product(test::transposed(found.left), known.matrix));
      const Dense by_right =
          test::product(test::product(known.matrix, test::transposed(found.right)), found.right);
      double others = 0;
      for (Count r = rank; r < known.sigma.rows; ++r) others += std::pow(known.sigma.at(r, r), 2);
      EXPECT_NEAR(test::squared_distance(known.matrix, by_left), others, 1e-11);
      EXPECT_NEAR(test::squared_distance(known.matrix, by_right), others, 1e-11);
    }
}

// As a router's gradient with two experts, whose columns add up to zero.
TEST(SingularVectors, HaveTheSignOfTheFirstOfEqualComponents) {
  for (const double rounding : {-1e-12, 0.0, 1e-12})
    for (const double sign : {-1.0, 1.0}) {
      Dense x(5, 2);
      for (Count i = 0; i < 5; ++i) {
        x.at(i, 0) = sign * static_cast<double>(1 + i);
        x.at(i, 1) = -(1 + rounding) * x.at(i, 0);
      }
      EXPECT_NEAR(vectors_of(x, 1).right.at(0, 0), std::sqrt(0.5), 1e-9) << rounding << " " << sign;
    }
}

TEST(SingularVectors, DoNotDependOnTheSizeOfNumbers) {
  const Known known(9, 6, 3);
  const Vectors expected = vectors_of(known.matrix, 4);
  for (const double factor : {std::ldexp(1.0, -900), std::ldexp(1.0, 900)}) {
    Dense scaled = known.matrix;
    for (double& value : scaled.values) value *= factor;
    const Vectors found = vectors_of(scaled, 4);
    EXPECT_EQ(found.left.values, expected.left.values);
    EXPECT_EQ(found.right.values, expected.right.values);
  }
}

TEST(SingularVectors, DoNotDependOnThreads) {
  const Dense x = test::random_matrix(80, 71, 4);
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Vectors one = vectors_of(x, 11);
  omp_set_num_threads(4);
  const Vectors four = vectors_of(x, 11);
  omp_set_num_threads(before);
  EXPECT_EQ(one.left.values, four.left.values);
  EXPECT_EQ(one.right.values, four.right.values);
}

// The smallest singular value is rounding, but more than the least that counts: a gradient whose rows add
// up to zero only nearly.
TEST(SingularVectors, OfNearlyNothingAreOrthogonal) {
  for (const auto& [rows, columns] : {std::pair<Count, Count>{8, 4}, {4, 8}}) {
    Dense x = test::product(test::random_matrix(rows, 3, 11), test::random_matrix(3, columns, 12));
    const Dense noise = test::random_matrix(rows, columns, 13);
    for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += 1e-13 * noise.values[i];
    const Vectors found = vectors_of(x, 4);
    const Dense left = test::product(test::transposed(found.left), found.left),
                right = test::product(found.right, test::transposed(found.right));
    for (Count i = 0; i < 4; ++i)
      for (Count j = 0; j < 4; ++j) {
        EXPECT_NEAR(left.at(i, j), i == j ? 1 : 0, 1e-14) << i << ", " << j;
        EXPECT_NEAR(right.at(i, j), i == j ? 1 : 0, 1e-14) << i << ", " << j;
      }
    const Dense projected = test::product(test::transposed(found.left), x);
    for (Count j = 0; j < columns; ++j) EXPECT_LT(std::abs(projected.at(3, j)), 1e-11) << j;
  }
}

TEST(SingularVectors, OfNothingAreZeros) {
  const Vectors none = vectors_of(Dense(4, 6), 3);
  for (const double value : none.left.values) EXPECT_EQ(value, 0);
  for (const double value : none.right.values) EXPECT_EQ(value, 0);
  // Of rank 2: the third vector would be rounding alone.
  const Dense two = test::product(test::random_matrix(12, 2, 6), test::random_matrix(2, 8, 7));
  const Vectors found = vectors_of(two, 3);
  for (Count i = 0; i < 12; ++i) EXPECT_EQ(found.left.at(i, 2), 0);
  for (Count i = 0; i < 8; ++i) EXPECT_EQ(found.right.at(2, i), 0);
  const Dense back = test::product(found.left, test::product(test::transposed(found.left), two));
  EXPECT_LT(test::squared_distance(two, back), 1e-24);
}

TEST(SingularVectors, OfWhatIsNotFiniteAreNot) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Dense x = test::random_matrix(5, 7, 2);
    x.at(3, 6) = bad;
    const Vectors found = vectors_of(x, 2);
    for (const double value : found.left.values) EXPECT_TRUE(std::isnan(value));
    for (const double value : found.right.values) EXPECT_TRUE(std::isnan(value));
  }
}

// Rows with a stride, in f32, and only one side.
TEST(SingularVectors, InSinglePrecision) {
  const Known known(10, 7, 1);
  constexpr Count stride = 9;
  std::vector<float> x(10 * stride, std::numeric_limits<float>::quiet_NaN());
  for (Count i = 0; i < 10; ++i)
    for (Count j = 0; j < 7; ++j)
      x[static_cast<std::size_t>(i * stride + j)] = static_cast<float>(known.matrix.at(i, j));
  std::vector<double> scratch(static_cast<std::size_t>(singular_scratch(10, 7)));
  std::vector<float> left(10 * 3), right(3 * 7);
  singular_vectors<float>(x.data(), stride, 10, 7, 3, left.data(), nullptr, scratch.data());
  singular_vectors<float>(x.data(), stride, 10, 7, 3, nullptr, right.data(), scratch.data());
  for (Count r = 0; r < 3; ++r) {
    for (Count i = 0; i < 10; ++i)
      EXPECT_NEAR(left[static_cast<std::size_t>(i * 3 + r)], known.left.at(i, r), 1e-5);
    for (Count i = 0; i < 7; ++i)
      EXPECT_NEAR(right[static_cast<std::size_t>(r * 7 + i)], known.right.at(r, i), 1e-5);
  }
}

}  // namespace
}  // namespace lockstep
