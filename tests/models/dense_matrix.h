// Small dense matrices of tests, with plain loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "collectives/base/slice.h"

namespace lockstep::test {

// In row-major order.
struct Dense {
  Count rows, columns;
  std::vector<double> values;

  Dense(Count r, Count c) : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}
  double& at(Count row, Count column) {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  double at(Count row, Count column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
};

inline Dense transposed(const Dense& x) {
  Dense t(x.columns, x.rows);
  for (Count i = 0; i < x.rows; ++i)
    for (Count j = 0; j < x.columns; ++j) t.at(j, i) = x.at(i, j);
  return t;
}

inline Dense product(const Dense& a, const Dense& b) {
  Dense c(a.rows, b.columns);
  for (Count i = 0; i < a.rows; ++i)
    for (Count k = 0; k < a.columns; ++k)
      for (Count j = 0; j < b.columns; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
  return c;
}

inline double furthest(const Dense& a, const Dense& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i)
    most = std::max(most, std::abs(a.values[i] - b.values[i]));
  return most;
}

inline double squared_distance(const Dense& a, const Dense& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) sum += std::pow(a.values[i] - b.values[i], 2);
  return sum;
}

inline Dense random_matrix(Count rows, Count columns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Dense x(rows, columns);
  for (double& value : x.values) value = normal(random);
  return x;
}

// With orthonormal columns: at most as many as rows.
inline Dense orthonormal(Count rows, Count columns, unsigned seed) {
  Dense x = random_matrix(rows, columns, seed);
  for (Count c = 0; c < columns; ++c)
    for (int twice = 0; twice < 2; ++twice) {
      for (Count before = 0; before < c; ++before) {
        double dot = 0;
        for (Count i = 0; i < rows; ++i) dot += x.at(i, before) * x.at(i, c);
        for (Count i = 0; i < rows; ++i) x.at(i, c) -= dot * x.at(i, before);
      }
      double square = 0;
      for (Count i = 0; i < rows; ++i) square += x.at(i, c) * x.at(i, c);
      for (Count i = 0; i < rows; ++i) x.at(i, c) /= std::sqrt(square);
    }
  return x;
}

}  // namespace lockstep::test
