// Rows that go to experts and come back.
#include "models/ops/kernels.h"

namespace lockstep::host {

template <typename T>
void gather_rows(T* out, const T* x, const std::int32_t* tokens, const double* factors, Count rows,
                 Count columns) {
#pragma omp parallel for schedule(static)
  for (Count r = 0; r < rows; ++r) {
    const T factor = factors ? static_cast<T>(factors[r]) : 1;
    const T* const from = x + tokens[r] * columns;
    T* const to = out + r * columns;
    for (Count c = 0; c < columns; ++c) to[c] = factor * from[c];
  }
}

template <typename T>
void combine_rows(T* out, const T* base, const T* x, const std::int32_t* rows,
                  const double* factors, Count tokens, Count per_token, Count columns) {
#pragma omp parallel for schedule(static)
  for (Count t = 0; t < tokens; ++t) {
    T* const to = out + t * columns;
    for (Count c = 0; c < columns; ++c) to[c] = base ? base[t * columns + c] : 0;
    for (Count k = t * per_token; k < (t + 1) * per_token; ++k) {
      if (rows[k] < 0) continue;
      const T factor = factors ? static_cast<T>(factors[k]) : 1;
      const T* const from = x + rows[k] * columns;
      for (Count c = 0; c < columns; ++c) to[c] += factor * from[c];
    }
  }
}

template <typename T>
void row_products(T* products, const T* dout, const T* x, const std::int32_t* rows, Count tokens,
                  Count per_token, Count columns) {
#pragma omp parallel for schedule(static)
  for (Count k = 0; k < tokens * per_token; ++k) {
    const T* const d = dout + k / per_token * columns;
    T sum = 0;
    if (rows[k] >= 0) {
      const T* const from = x + rows[k] * columns;
      for (Count c = 0; c < columns; ++c) sum += d[c] * from[c];
    }
    products[k] = sum;
  }
}

template void gather_rows(float*, const float*, const std::int32_t*, const double*, Count, Count);
template void gather_rows(double*, const double*, const std::int32_t*, const double*, Count, Count);
template void combine_rows(float*, const float*, const float*, const std::int32_t*, const double*,
                           Count, Count, Count);
template void combine_rows(double*, const double*, const double*, const std::int32_t*,
                           const double*, Count, Count, Count);
template void row_products(float*, const float*, const float*, const std::int32_t*, Count, Count,
                           Count);
template void row_products(double*, const double*, const double*, const std::int32_t*, Count, Count,
                           Count);

}  // namespace lockstep::host
