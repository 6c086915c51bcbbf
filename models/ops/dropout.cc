// Dropout, alone and between a bias and a residual. Srivastava et al., "Dropout: a simple way to
// prevent neural networks from overfitting", 2014.
#include "models/ops/dropout_mask.h"
#include "models/ops/kernels.h"

namespace lockstep::host {

template <typename T>
void bias_dropout_add(T* out, const T* base, const T* x, const T* bias, Count rows, Count columns,
                      const Dropout& dropout) {
  with_mask<T>(dropout, [&](auto mask) {
#pragma omp parallel for schedule(static) firstprivate(mask)
    for (Count r = 0; r < rows; ++r) {
      const T *const row = x + r * columns, *const from = base ? base + r * columns : nullptr;
      T* const o = out + r * columns;
      const Count index = dropout.index(r, columns);
#pragma omp simd
      for (Count c = 0; c < columns; ++c) {
        const T added = mask(row[c] + bias[c], index + c);
        o[c] = from ? from[c] + added : added;
      }
    }
  });
}

template <typename T>
void dropout(T* out, const T* x, Count rows, Count columns, const Dropout& which) {
  with_mask<T>(which, [&](auto mask) {
#pragma omp parallel for schedule(static) firstprivate(mask)
    for (Count r = 0; r < rows; ++r) {
      const T* const row = x + r * columns;
      T* const o = out + r * columns;
      const Count index = which.index(r, columns);
#pragma omp simd
      for (Count c = 0; c < columns; ++c) o[c] = mask(row[c], index + c);
    }
  });
}

template void bias_dropout_add(float*, const float*, const float*, const float*, Count, Count,
                               const Dropout&);
template void bias_dropout_add(double*, const double*, const double*, const double*, Count, Count,
                               const Dropout&);
template void dropout(float*, const float*, Count, Count, const Dropout&);
template void dropout(double*, const double*, Count, Count, const Dropout&);

}  // namespace lockstep::host
