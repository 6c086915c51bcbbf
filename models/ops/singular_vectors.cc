#include "models/ops/singular_vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace lockstep {
namespace {

// Fewer vectors are done before threads have begun.
constexpr Count worth_threads = 64;

double dot(const double* a, const double* b, Count count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Count i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// Returns the component with the largest magnitude. Of several that differ only by rounding it returns the
// first; otherwise rounding would choose the sign.
double peak_of(const double* x, Count count) {
  constexpr double nearly = 0.999;
  const auto size = [](double each) { return std::abs(each); };
  const double largest = std::abs(*std::ranges::max_element(x, x + count, {}, size));
  return *std::ranges::find_if(x, x + count,
                               [&](double each) { return size(each) >= nearly * largest; });
}

// Makes the k vectors a[j], each of n >= k elements, upper triangular: element i of vector j is R(i, j)
// for i <= j.
void reflect(double* a, Count n, Count k) {
  std::vector<double> diagonal(static_cast<std::size_t>(k));
  for (Count j = 0; j < k; ++j) {
    double* const v = a + j * n + j;
    const Count rest = n - j;
    const double norm = std::sqrt(dot(v, v, rest));
    diagonal[static_cast<std::size_t>(j)] = v[0] > 0 ? -norm : norm;
    v[0] -= diagonal[static_cast<std::size_t>(j)];
    const double square = dot(v, v, rest);
    if (square == 0) continue;
#pragma omp parallel for schedule(static) if (k >= worth_threads)
    for (Count c = j + 1; c < k; ++c) {
      double* const x = a + c * n + j;
      const double factor = 2 * dot(v, x, rest) / square;
      for (Count i = 0; i < rest; ++i) x[i] -= factor * v[i];
    }
  }
  for (Count j = 0; j < k; ++j) a[j * n + j] = diagonal[static_cast<std::size_t>(j)];
}

// Turns two vectors in their plane until they are orthogonal. Returns whether they were not.
bool rotate(double* x, double* y, Count k, double tolerance) {
  const double xx = dot(x, x, k), yy = dot(y, y, k), xy = dot(x, y, k);
  if (!(std::abs(xy) > tolerance * std::sqrt(xx * yy))) return false;
  const double zeta = (yy - xx) / (2 * xy);
  const double t = (zeta < 0 ? -1 : 1) / (std::abs(zeta) + std::hypot(1.0, zeta));
  const double cosine = 1 / std::hypot(1.0, t), sine = cosine * t;
#pragma omp simd
  for (Count i = 0; i < k; ++i) {
    const double before = x[i];
    x[i] = cosine * before - sine * y[i];
    y[i] = sine * before + cosine * y[i];
  }
  return true;
}

// Makes k vectors of k elements orthogonal. The pairs of a turn are disjoint, so that threads take them
// in any order: vector 0 stays, the others move around a table one seat a turn.
void orthogonalize(double* x, Count k) {
  const double tolerance = std::numeric_limits<double>::epsilon() * std::sqrt(double(k));
  const Count seats = k + k % 2;  // the last one is empty if k is odd
  const auto at = [&](Count seat, Count turn) {
    return seat == 0 ? 0 : 1 + (seat - 1 + turn) % (seats - 1);
  };
  constexpr int most_rounds = 60;
  bool turned = true;
  for (int round = 0; turned && round < most_rounds; ++round) {
    turned = false;
    for (Count turn = 0; turn < seats - 1; ++turn) {
#pragma omp parallel for schedule(static) reduction(|| : turned) if (k >= worth_threads)
      for (Count seat = 0; seat < seats / 2; ++seat) {
        const Count one = at(seat, turn), other = at(seats - 1 - seat, turn);
        const auto [first, second] = std::minmax(one, other);
        if (second < k) turned = rotate(x + first * k, x + second * k, k, tolerance) || turned;
      }
    }
  }
}

// Makes a vector of n elements orthogonal to `count` others, which are unit vectors or zeros, and a unit
// vector too, unless nothing is left of it.
void make_unit(double* vector, const double* others, Count count, Count n) {
  // Where little is left of it, rounding has turned it to the others again.
  constexpr int times = 2;
  for (int time = 0; time < times; ++time) {
    for (Count other = 0; other < count; ++other) {
      const double along = dot(vector, others + other * n, n);
      for (Count i = 0; i < n; ++i) vector[i] -= along * others[other * n + i];
    }
    const double left = std::sqrt(dot(vector, vector, n));
    if (left > 0)
      for (Count i = 0; i < n; ++i) vector[i] /= left;
  }
}

}  // namespace

Count singular_scratch(Count rows, Count columns) {
  const Count k = std::min(rows, columns);
  return rows * columns + k * k;
}

template <typename T>
void singular_vectors(const T* of, Count stride, Count rows, Count columns, Count rank, T* left,
                      T* right, double* scratch) {
  const bool is_tall = rows >= columns;
  const Count n = std::max(rows, columns), k = std::min(rows, columns);
  const auto element = [&](Count of_n, Count of_k) {
    return static_cast<double>(is_tall ? of[of_n * stride + of_k] : of[of_k * stride + of_n]);
  };
  double* const a = scratch;
  double* const x = scratch + n * k;
  double largest = 0;
  bool is_finite = true;
  for (Count i = 0; i < n; ++i)
    for (Count j = 0; j < k; ++j) {
      is_finite = is_finite && std::isfinite(element(i, j));
      largest = std::max(largest, std::abs(element(i, j)));
    }
  const auto fill = [&](T value) {
    if (left) std::fill_n(left, rows * rank, value);
    if (right) std::fill_n(right, rank * columns, value);
  };
  if (!is_finite) return fill(std::numeric_limits<T>::quiet_NaN());
  if (largest == 0) return fill(0);
  // Squares of scaled elements neither overflow nor underflow.
  for (Count j = 0; j < k; ++j)
    for (Count i = 0; i < n; ++i) a[j * n + i] = element(i, j) / largest;
  reflect(a, n, k);
  for (Count i = 0; i < k; ++i)
    for (Count j = 0; j < k; ++j) x[i * k + j] = j < i ? 0 : a[j * n + i];
  orthogonalize(x, k);

  std::vector<double> sigma(static_cast<std::size_t>(k));
  for (Count i = 0; i < k; ++i)
    sigma[static_cast<std::size_t>(i)] = std::sqrt(dot(x + i * k, x + i * k, k));
  std::vector<std::size_t> order(sigma.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return sigma[i]; });
  const double least =
      static_cast<double>(n) * std::numeric_limits<T>::epsilon() * sigma[order.front()];
  T* const of_smaller = is_tall ? right : left;
  T* const of_larger = is_tall ? left : right;
  const auto place = [&](bool is_left, Count vector, Count i, Count length) {
    return is_left ? i * rank + vector : vector * length + i;
  };
  for (Count r = 0; r < rank; ++r) {
    const std::size_t which = order[static_cast<std::size_t>(r)];
    const double* const from = x + static_cast<Count>(which) * k;
    const double factor =
        sigma[which] <= least ? 0 : std::copysign(1 / sigma[which], peak_of(from, k));
    if (of_smaller)
      for (Count j = 0; j < k; ++j)
        of_smaller[place(!is_tall, r, j, k)] = static_cast<T>(factor * from[j]);
    if (!of_larger) continue;
    double* const longer = a + r * n;
    for (Count i = 0; i < n; ++i) {
      longer[i] = 0;
      for (Count j = 0; j < k; ++j) longer[i] += element(i, j) / largest * (factor * from[j]);
    }
    make_unit(longer, a, r, n);
    for (Count i = 0; i < n; ++i) of_larger[place(is_tall, r, i, n)] = static_cast<T>(longer[i]);
  }
}

template void singular_vectors(const float*, Count, Count, Count, Count, float*, float*, double*);
template void singular_vectors(const double*, Count, Count, Count, Count, double*, double*,
                               double*);

}  // namespace lockstep
