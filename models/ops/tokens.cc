// Embedding and cross entropy: the kernels where tokens meet numbers.
#include <algorithm>
#include <cmath>
#include <vector>

#include "models/ops/exponential.h"
#include "models/ops/kernels.h"

namespace lockstep::host {

template <typename T>
void embedding(T* out, const T* tokens, const T* positions, const std::int32_t* inputs, Count rows,
               Count length, Count columns) {
#pragma omp parallel for schedule(static)
  for (Count r = 0; r < rows; ++r) {
    const T *const token = tokens + inputs[r] * columns, *const position =
                                                             positions + r % length * columns;
    for (Count c = 0; c < columns; ++c) out[r * columns + c] = token[c] + position[c];
  }
}

// Threads share out the columns, so that each sum is taken in the order of the rows.
template <typename T>
void embedding_backward(T* dtokens, T* dpositions, const T* dout, const std::int32_t* inputs,
                        Count rows, Count length, Count columns) {
  constexpr Count part = 64;
#pragma omp parallel for schedule(static)
  for (Count begin = 0; begin < columns; begin += part) {
    const Count end = std::min(columns, begin + part);
    for (Count r = 0; r < rows; ++r) {
      const T* const d = dout + r * columns;
      T *const token = dtokens + inputs[r] * columns, *const position =
                                                          dpositions + r % length * columns;
      for (Count c = begin; c < end; ++c) token[c] += d[c];
      for (Count c = begin; c < end; ++c) position[c] += d[c];
    }
  }
}

template <typename T>
double cross_entropy(T* logits, const std::int32_t* targets, Count rows, Count columns, T scale) {
  std::vector<double> losses(static_cast<std::size_t>(rows));
#pragma omp parallel for schedule(static)
  for (Count r = 0; r < rows; ++r) {
    T* const row = logits + r * columns;
    T highest = row[0];
#pragma omp simd reduction(max : highest)
    for (Count c = 0; c < columns; ++c) highest = std::max(highest, row[c]);
    const T target = row[targets[r]] - highest;
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Count c = 0; c < columns; ++c) {
      row[c] = exponential(row[c] - highest);
      sum += row[c];
    }
    losses[r] = static_cast<double>(std::log(sum) - target);
    const T normalise = scale / sum;
#pragma omp simd
    for (Count c = 0; c < columns; ++c) row[c] *= normalise;
    row[targets[r]] -= scale;
  }
  double total = 0;
  for (const double loss : losses) total += loss;
  return total;
}

template void embedding(float*, const float*, const float*, const std::int32_t*, Count, Count,
                        Count);
template void embedding(double*, const double*, const double*, const std::int32_t*, Count, Count,
                        Count);
template void embedding_backward(float*, float*, const float*, const std::int32_t*, Count, Count,
                                 Count);
template void embedding_backward(double*, double*, const double*, const std::int32_t*, Count, Count,
                                 Count);
template double cross_entropy(float*, const std::int32_t*, Count, Count, float);
template double cross_entropy(double*, const std::int32_t*, Count, Count, double);

}  // namespace lockstep::host
