// The operands of attention kernels: rows of matrices, in which a head has some columns.
#pragma once

#include "models/backend.h"
#include "models/ops/cuda/numbers.cuh"

namespace lockstep::cuda {

// Rows that are `stride` apart.
template <typename T>
struct Strided {
  T* data;
  Count stride;

  explicit Strided(const Matrix& matrix) : data(at<T>(matrix.slice)), stride(matrix.stride) {}
  __device__ T* row(Count r) const { return data + r * stride; }
};

template <typename T>
struct Operands {
  Strided<const T> q, k, v;

  Operands(const Matrix& queries, const Matrix& keys, const Matrix& values)
      : q(queries), k(keys), v(values) {}
};

// Results rounded to T; or in f32, which may be added to what is there.
template <typename T>
struct Results {
  T* rounded = nullptr;
  float* exact = nullptr;
  Count stride;
  bool adds;

  Results(const Matrix& matrix, bool adds_exact) : stride(matrix.stride), adds(adds_exact) {
    if (matrix.slice.dtype == DType::f32)
      exact = at<float>(matrix.slice);
    else
      rounded = at<T>(matrix.slice);
  }
  // Moves to a row and a column.
  __device__ Results from(Count row, Count column) const {
    Results there = *this;
    if (rounded)
      there.rounded += row * stride + column;
    else
      there.exact += row * stride + column;
    return there;
  }
};

// For the geometry of a kernel whose blocks have rows of queries, or of keys.
inline AttentionShape shape_of(const AttentionPart& part, const Positions& rows) {
  return {part.sequences, rows.count(), part.heads, part.head_size, part.kv_heads};
}

}  // namespace lockstep::cuda
