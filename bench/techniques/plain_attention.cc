#include "bench/techniques/plain_attention.h"

#include <omp.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

// Rows of scores become probabilities.
template <typename T>
void softmax(T* scores, Count length, T scale) {
  for (Count query = 0; query < length; ++query) {
    T* const row = scores + query * length;
    const T highest = *std::max_element(row, row + query + 1);
    T sum = 0;
    for (Count key = 0; key <= query; ++key) {
      row[key] = std::exp((row[key] - highest) * scale);
      sum += row[key];
    }
    for (Count key = 0; key <= query; ++key) row[key] /= sum;
    std::fill(row + query + 1, row + length, T{0});
  }
}

// Gradients of probabilities become those of scores, unscaled.
template <typename T>
void softmax_backward(T* gradient, const T* probabilities, Count length, T scale) {
  for (Count query = 0; query < length; ++query) {
    T* const row = gradient + query * length;
    const T* const p = probabilities + query * length;
    T product = 0;
    for (Count key = 0; key <= query; ++key) product += row[key] * p[key];
    for (Count key = 0; key < length; ++key) row[key] = p[key] * (row[key] - product) * scale;
  }
}

Slice as_slice(std::vector<std::byte>& bytes, DType dtype) {
  return Slice(bytes.data(), std::ssize(bytes) / element_bytes(dtype), dtype);
}

template <typename Function>
void with_type(DType dtype, Function function) {
  dtype == DType::f64 ? function(double{}) : function(float{});
}

template <typename T>
T* at(const Matrix& matrix) {
  return reinterpret_cast<T*>(matrix.slice.data);
}

double scores_bytes(const AttentionShape& s, DType dtype) {
  return static_cast<double>(s.length * s.length * element_bytes(dtype));
}

}  // namespace

struct PlainAttention::Head {
  Matrix q, k, v, probabilities;
};

PlainAttention::PlainAttention(const AttentionShape& shape, DType dtype, int threads)
    : shape_(shape),
      dtype_(dtype),
      probabilities_(static_cast<std::size_t>(kept_bytes(shape, dtype))),
      room_(static_cast<std::size_t>(working_bytes(shape, dtype, threads))) {}

double PlainAttention::kept_bytes(const AttentionShape& shape, DType dtype) {
  return scores_bytes(shape, dtype) * static_cast<double>(shape.sequences * shape.heads);
}

double PlainAttention::working_bytes(const AttentionShape& shape, DType dtype, int threads) {
  return scores_bytes(shape, dtype) * threads;
}

PlainAttention::Head PlainAttention::head(Slice qkv, Count sequence, Count head) {
  const AttentionShape& s = shape_;
  const Count size = s.head_size, kv_head = head / (s.heads / s.kv_heads);
  const Matrix rows(qkv.part(sequence * s.length * s.qkv_width(), s.length * s.qkv_width()),
                    s.length, s.qkv_width());
  const Slice all = as_slice(probabilities_, dtype_);
  const Count scores = s.length * s.length;
  return {rows.columns_from(head * size, size), rows.columns_from(s.width() + kv_head * size, size),
          rows.columns_from(s.width() + s.kv_width() + kv_head * size, size),
          Matrix(all.part((sequence * s.heads + head) * scores, scores), s.length, s.length)};
}

Matrix PlainAttention::columns_of(Slice out, Count sequence, Count head) const {
  const Count count = shape_.length * shape_.width();
  return Matrix(out.part(sequence * count, count), shape_.length, shape_.width())
      .columns_from(head * shape_.head_size, shape_.head_size);
}

Matrix PlainAttention::room(int thread) {
  const Count scores = shape_.length * shape_.length;
  return {as_slice(room_, dtype_).part(thread * scores, scores), shape_.length, shape_.length};
}

void PlainAttention::forward(Slice out, Slice qkv) {
  Backend& backend = host_backend();
#pragma omp parallel for schedule(static)
  for (Count i = 0; i < shape_.sequences * shape_.heads; ++i) {
    const Count sequence = i / shape_.heads, number = i % shape_.heads;
    const Head h = head(qkv, sequence, number);
    backend.gemm(h.q, h.k.t(), h.probabilities, 0);
    with_type(dtype_, [&]<typename T>(T) {
      softmax(at<T>(h.probabilities), shape_.length,
              1 / std::sqrt(static_cast<T>(shape_.head_size)));
    });
    backend.gemm(h.probabilities, h.v, columns_of(out, sequence, number), 0);
  }
}

// One thread has all heads that share keys and values, so that no other thread adds to their
// gradients.
void PlainAttention::backward(Slice dqkv, Slice dout, Slice qkv) {
  Backend& backend = host_backend();
  const Count sharers = shape_.heads / shape_.kv_heads;
#pragma omp parallel for schedule(static)
  for (Count i = 0; i < shape_.sequences * shape_.kv_heads; ++i)
    for (Count sharer = 0; sharer < sharers; ++sharer) {
      const Count sequence = i / shape_.kv_heads, number = i % shape_.kv_heads * sharers + sharer;
      const Head h = head(qkv, sequence, number), d = head(dqkv, sequence, number);
      const Matrix gradient = columns_of(dout, sequence, number),
                   scores = room(omp_get_thread_num());
      const double beta = sharer == 0 ? 0 : 1;
      backend.gemm(h.probabilities.t(), gradient, d.v, beta);
      backend.gemm(gradient, h.v.t(), scores, 0);
      with_type(dtype_, [&]<typename T>(T) {
        softmax_backward(at<T>(scores), at<T>(h.probabilities), shape_.length,
                         1 / std::sqrt(static_cast<T>(shape_.head_size)));
      });
      backend.gemm(scores, h.k, d.q, 0);
      backend.gemm(scores.t(), h.q, d.k, beta);
    }
}

}  // namespace lockstep
