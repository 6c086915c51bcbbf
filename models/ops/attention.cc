// Causal attention in blocks of query rows. A block's scores against all its keys fit the cache, so
// the softmax is taken in one pass and only its log-sum-exp is kept: memory grows with the length,
// not with its square.
//
//   forward    S = Q K^T / sqrt(d)    l = log sum exp S    P = exp(S - l)      O = P V
//   backward   dP = dO V^T    D = rowsum(dO * O)    dS = P * (dP - D) / sqrt(d)
//              dQ = dS K      dK += dS^T Q          dV += P^T dO
//
// Dao, "FlashAttention-2", 2023.
#include <algorithm>
#include <cmath>
#include <vector>

#include "models/ops/exponential.h"
#include "models/ops/kernels.h"

namespace lockstep::host {
namespace {

constexpr Count block = 64;  // query rows at a time

// One head of one sequence: where its queries, keys and values lie, and how rows follow each other.
template <typename T>
struct Head {
  T *q, *k, *v;
  Count stride;
};

template <typename T>
Head<T> head_of(T* qkv, const AttentionShape& s, Count sequence, Count head) {
  const Count stride = 3 * s.width();
  T* const q = qkv + sequence * s.length * stride + head * s.head_size;
  return {q, q + s.width(), q + 2 * s.width(), stride};
}

// A thread's scratch, kept between calls.
template <typename T>
T* scratch(int which, Count count) {
  thread_local std::vector<T> memory[2];
  if (std::ssize(memory[which]) < count) memory[which].resize(static_cast<std::size_t>(count));
  return memory[which].data();
}

// scores[rows, keys] = the queries first .. first + rows - 1 against the first `keys` keys,
// unscaled.
template <typename T>
void block_scores(T* scores, const Head<const T>& h, Count first, Count rows, Count keys,
                  Count head_size) {
  gemm(false, true, rows, keys, head_size, h.q + first * h.stride, h.stride, h.k, h.stride, T{0},
       scores, keys);
}

template <typename T>
void attend(T* out, T* log_sum_exp, const Head<const T>& h, const AttentionShape& s) {
  const T scale = T{1} / std::sqrt(static_cast<T>(s.head_size));
  for (Count first = 0; first < s.length; first += block) {
    const Count rows = std::min(block, s.length - first), keys = first + rows;
    T* const scores = scratch<T>(0, block * s.length);
    block_scores(scores, h, first, rows, keys, s.head_size);
    for (Count r = 0; r < rows; ++r) {
      T* const row = scores + r * keys;
      const Count seen = first + r + 1;
      T highest = row[0];
#pragma omp simd reduction(max : highest)
      for (Count c = 0; c < seen; ++c) highest = std::max(highest, row[c]);
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (Count c = 0; c < seen; ++c) {
        row[c] = exponential((row[c] - highest) * scale);
        sum += row[c];
      }
      const T normalise = T{1} / sum;
#pragma omp simd
      for (Count c = 0; c < seen; ++c) row[c] *= normalise;
      std::fill(row + seen, row + keys, T{0});
      log_sum_exp[first + r] = highest * scale + std::log(sum);
    }
    gemm(false, false, rows, s.head_size, keys, scores, keys, h.v, h.stride, T{0},
         out + first * s.width(), s.width());
  }
}

template <typename T>
void attend_backward(const Head<T>& d, const T* dout, const T* out, const T* log_sum_exp,
                     const Head<const T>& h, const AttentionShape& s) {
  const T scale = T{1} / std::sqrt(static_cast<T>(s.head_size));
  for (Count first = 0; first < s.length; first += block) {
    const Count rows = std::min(block, s.length - first), keys = first + rows;
    T *const p = scratch<T>(0, block * s.length), *const ds = scratch<T>(1, block * s.length);
    const T *const block_dout = dout + first * s.width(), *const block_out =
                                                              out + first * s.width();
    block_scores(p, h, first, rows, keys, s.head_size);
    gemm(false, true, rows, keys, s.head_size, block_dout, s.width(), h.v, h.stride, T{0}, ds,
         keys);
    for (Count r = 0; r < rows; ++r) {
      T *const p_row = p + r * keys, *const ds_row = ds + r * keys;
      const Count seen = first + r + 1;
      T product = 0;
#pragma omp simd reduction(+ : product)
      for (Count c = 0; c < s.head_size; ++c)
        product += block_dout[r * s.width() + c] * block_out[r * s.width() + c];
      const T l = log_sum_exp[first + r];
#pragma omp simd
      for (Count c = 0; c < seen; ++c) {
        p_row[c] = exponential(p_row[c] * scale - l);
        ds_row[c] = p_row[c] * (ds_row[c] - product) * scale;
      }
      std::fill(p_row + seen, p_row + keys, T{0});
      std::fill(ds_row + seen, ds_row + keys, T{0});
    }
    gemm(false, false, rows, s.head_size, keys, ds, keys, h.k, h.stride, T{0},
         d.q + first * d.stride, d.stride);
    // Keys before this block have gradients from earlier blocks of queries; those of the block
    // itself are new.
    const auto add_to_keys = [&](T* into, const T* weights, const T* rows_of, Count stride) {
      if (first > 0)
        gemm(true, false, first, s.head_size, rows, weights, keys, rows_of, stride, T{1}, into,
             d.stride);
      gemm(true, false, rows, s.head_size, rows, weights + first, keys, rows_of, stride, T{0},
           into + first * d.stride, d.stride);
    };
    add_to_keys(d.k, ds, h.q + first * h.stride, h.stride);
    add_to_keys(d.v, p, block_dout, s.width());
  }
}

}  // namespace

template <typename T>
void attention(T* out, T* log_sum_exp, const T* qkv, const AttentionShape& s) {
#pragma omp parallel for schedule(static)
  for (Count i = 0; i < s.sequences * s.heads; ++i) {
    const Count sequence = i / s.heads, head = i % s.heads;
    attend(out + sequence * s.length * s.width() + head * s.head_size, log_sum_exp + i * s.length,
           head_of(qkv, s, sequence, head), s);
  }
}

template <typename T>
void attention_backward(T* dqkv, const T* dout, const T* out, const T* log_sum_exp, const T* qkv,
                        const AttentionShape& s) {
#pragma omp parallel for schedule(static)
  for (Count i = 0; i < s.sequences * s.heads; ++i) {
    const Count sequence = i / s.heads, head = i % s.heads;
    const Count offset = sequence * s.length * s.width() + head * s.head_size;
    attend_backward(head_of(dqkv, s, sequence, head), dout + offset, out + offset,
                    log_sum_exp + i * s.length, head_of(qkv, s, sequence, head), s);
  }
}

template void attention(float*, float*, const float*, const AttentionShape&);
template void attention(double*, double*, const double*, const AttentionShape&);
template void attention_backward(float*, const float*, const float*, const float*, const float*,
                                 const AttentionShape&);
template void attention_backward(double*, const double*, const double*, const double*,
                                 const double*, const AttentionShape&);

}  // namespace lockstep::host
