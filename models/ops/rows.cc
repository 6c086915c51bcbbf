// Biases, their gradients, and layer norm: kernels that iterate over rows.
#include <algorithm>
#include <cmath>
#include <vector>

#include "models/ops/kernels.h"

namespace lockstep::host {
namespace {

// Sums over rows have this many parts, so the bits do not depend on the number of threads.
constexpr int row_parts = 8;

// accumulate(sums, row) adds one row to `width` sums; then into += the parts, in order.
template <typename T, typename Accumulate>
void sum_over_rows(T* into, Count width, Count rows, Accumulate accumulate) {
  thread_local std::vector<T> partial;
  partial.assign(static_cast<std::size_t>(row_parts * width), T{0});
  T* const sums = partial.data();
#pragma omp parallel for schedule(static)
  for (int part = 0; part < row_parts; ++part)
    for (Count r = rows * part / row_parts; r < rows * (part + 1) / row_parts; ++r)
      accumulate(sums + part * width, r);
  for (int part = 0; part < row_parts; ++part)
    for (Count c = 0; c < width; ++c) into[c] += sums[part * width + c];
}

}  // namespace

template <typename T>
void add_bias(T* out, const T* base, const T* bias, Count rows, Count columns) {
#pragma omp parallel for schedule(static)
  for (Count r = 0; r < rows; ++r) {
    T* const o = out + r * columns;
    if (base) {
      const T* const from = base + r * columns;
      for (Count c = 0; c < columns; ++c) o[c] = from[c] + bias[c];
    } else {
      std::copy_n(bias, columns, o);
    }
  }
}

template <typename T>
void sum_rows(T* sum, const T* x, Count rows, Count columns) {
  sum_over_rows(sum, columns, rows, [&](T* __restrict sums, Count r) {
    const T* const row = x + r * columns;
    for (Count c = 0; c < columns; ++c) sums[c] += row[c];
  });
}

template <typename T>
void layer_norm(T* out, T* mean, T* rstd, const T* x, const T* weight, const T* bias, Count rows,
                Count columns, T epsilon) {
#pragma omp parallel for schedule(static)
  for (Count r = 0; r < rows; ++r) {
    const T* const row = x + r * columns;
    T* const o = out + r * columns;
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Count c = 0; c < columns; ++c) sum += row[c];
    const T m = sum / static_cast<T>(columns);
    T squares = 0;
#pragma omp simd reduction(+ : squares)
    for (Count c = 0; c < columns; ++c) squares += (row[c] - m) * (row[c] - m);
    const T s = T{1} / std::sqrt(squares / static_cast<T>(columns) + epsilon);
#pragma omp simd
    for (Count c = 0; c < columns; ++c) o[c] = (row[c] - m) * s * weight[c] + bias[c];
    mean[r] = m;
    rstd[r] = s;
  }
}

template <typename T>
void layer_norm_backward_input(T* dx, const T* base, const T* dout, const T* x, const T* mean,
                               const T* rstd, const T* weight, Count rows, Count columns) {
#pragma omp parallel for schedule(static)
  for (Count r = 0; r < rows; ++r) {
    const T *const row = x + r * columns, *const d = dout + r * columns;
    T* const out = dx + r * columns;
    const T m = mean[r], s = rstd[r];
    T sum = 0, projection = 0;
#pragma omp simd reduction(+ : sum, projection)
    for (Count c = 0; c < columns; ++c) {
      const T g = d[c] * weight[c];
      sum += g;
      projection += g * (row[c] - m) * s;
    }
    sum /= static_cast<T>(columns);
    projection /= static_cast<T>(columns);
    const T* const from = base ? base + r * columns : nullptr;
#pragma omp simd
    for (Count c = 0; c < columns; ++c) {
      const T g = (d[c] * weight[c] - sum - (row[c] - m) * s * projection) * s;
      out[c] = from ? from[c] + g : g;
    }
  }
}

template <typename T>
void layer_norm_backward_weight(T* dweight, T* dbias, const T* dout, const T* x, const T* mean,
                                const T* rstd, Count rows, Count columns) {
  sum_over_rows(dweight, columns, rows, [&](T* __restrict sums, Count r) {
    const T *const row = x + r * columns, *const d = dout + r * columns;
    const T m = mean[r], s = rstd[r];
    for (Count c = 0; c < columns; ++c) sums[c] += d[c] * (row[c] - m) * s;
  });
  sum_rows(dbias, dout, rows, columns);
}

template void add_bias(float*, const float*, const float*, Count, Count);
template void add_bias(double*, const double*, const double*, Count, Count);
template void sum_rows(float*, const float*, Count, Count);
template void sum_rows(double*, const double*, Count, Count);
template void layer_norm(float*, float*, float*, const float*, const float*, const float*, Count,
                         Count, float);
template void layer_norm(double*, double*, double*, const double*, const double*, const double*,
                         Count, Count, double);
template void layer_norm_backward_input(float*, const float*, const float*, const float*,
                                        const float*, const float*, const float*, Count, Count);
template void layer_norm_backward_input(double*, const double*, const double*, const double*,
                                        const double*, const double*, const double*, Count, Count);
template void layer_norm_backward_weight(float*, float*, const float*, const float*, const float*,
                                         const float*, Count, Count);
template void layer_norm_backward_weight(double*, double*, const double*, const double*,
                                         const double*, const double*, Count, Count);

}  // namespace lockstep::host
