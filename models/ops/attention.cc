// Causal attention in blocks of query rows. A block's scores against all its keys fit the cache, so
// the softmax is taken in one pass and only its log-sum-exp is kept: memory grows with the length,
// not with its square.
//
//   forward    S = Q K^T / sqrt(d)    l = log sum exp S    P = exp(S - l)      O = P V
//   backward   dP = dO V^T    D = rowsum(dO * O)    dS = P * (dP - D) / sqrt(d)
//              dQ = dS K      dK += dS^T Q          dV += P^T dO
//
// Dropout masks P where it meets V, so dP too. D stays: it is the sum of P * dP, masked or not.
//
// Dao, "FlashAttention-2", 2023.
#include <algorithm>
#include <cmath>
#include <vector>

#include "models/ops/dropout_mask.h"
#include "models/ops/exponential.h"
#include "models/ops/kernels.h"

namespace lockstep::host {
namespace {

constexpr Count block = 64;  // query rows at a time

// One head of queries of one sequence and the keys and values it looks at: where its queries, keys
// and values lie, and how rows follow each other.
template <typename T>
struct Head {
  T *q, *k, *v;
  Count stride;
};

template <typename T>
Head<T> head_of(T* qkv, const AttentionShape& s, Count sequence, Count head) {
  const Count stride = s.qkv_width(), kv_head = head / (s.heads / s.kv_heads);
  T* const queries = qkv + sequence * s.length * stride;
  T* const keys = queries + s.width() + kv_head * s.head_size;
  return {queries + head * s.head_size, keys, keys + s.kv_width(), stride};
}

// What dropout makes of the probabilities of one head of one sequence.
template <typename Mask>
struct HeadMask {
  Mask mask;
  Count first, stride;  // the index of the first query and key; from query to query

  HeadMask(Mask m, const Dropout& d, const AttentionShape& s, Count sequence, Count head)
      : mask(m),
        first(((d.first_row + sequence * s.length) * d.all_heads + d.first_head + head) * s.length),
        stride(d.all_heads * s.length) {}
  auto of_query(Count query) const {
    return [mask = mask, index = first + query * stride](auto probability, Count key) {
      return mask(probability, index + key);
    };
  }
};

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

template <typename T, typename Mask>
void attend(T* out, T* log_sum_exp, const Head<const T>& h, const AttentionShape& s,
            const HeadMask<Mask>& dropout) {
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
      const auto masked = dropout.of_query(first + r);
#pragma omp simd
      for (Count c = 0; c < seen; ++c) row[c] = masked(row[c] * normalise, c);
      std::fill(row + seen, row + keys, T{0});
      log_sum_exp[first + r] = highest * scale + std::log(sum);
    }
    gemm(false, false, rows, s.head_size, keys, scores, keys, h.v, h.stride, T{0},
         out + first * s.width(), s.width());
  }
}

// Overwrites the gradients of keys and values with beta_kv 0, adds to them with 1.
template <typename T, typename Mask>
void attend_backward(const Head<T>& d, const T* dout, const T* out, const T* log_sum_exp,
                     const Head<const T>& h, const AttentionShape& s, const HeadMask<Mask>& dropout,
                     T beta_kv) {
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
      const auto masked = dropout.of_query(first + r);
#pragma omp simd
      for (Count c = 0; c < seen; ++c) {
        const T p_unmasked = exponential(p_row[c] * scale - l);
        ds_row[c] = p_unmasked * (masked(ds_row[c], c) - product) * scale;
        p_row[c] = masked(p_unmasked, c);
      }
      std::fill(p_row + seen, p_row + keys, T{0});
      std::fill(ds_row + seen, ds_row + keys, T{0});
    }
    gemm(false, false, rows, s.head_size, keys, ds, keys, h.k, h.stride, T{0},
         d.q + first * d.stride, d.stride);
    // Keys before this block have gradients from earlier blocks of queries; those of the block
    // itself are new, unless another head has been here.
    const auto add_to_keys = [&](T* into, const T* weights, const T* rows_of, Count stride) {
      if (first > 0)
        gemm(true, false, first, s.head_size, rows, weights, keys, rows_of, stride, T{1}, into,
             d.stride);
      gemm(true, false, rows, s.head_size, rows, weights + first, keys, rows_of, stride, beta_kv,
           into + first * d.stride, d.stride);
    };
    add_to_keys(d.k, ds, h.q + first * h.stride, h.stride);
    add_to_keys(d.v, p, block_dout, s.width());
  }
}

}  // namespace

template <typename T>
void attention(T* out, T* log_sum_exp, const T* qkv, const AttentionShape& s,
               const Dropout& dropout) {
  with_mask<T>(dropout, [&](auto mask) {
#pragma omp parallel for schedule(static)
    for (Count i = 0; i < s.sequences * s.heads; ++i) {
      const Count sequence = i / s.heads, head = i % s.heads;
      attend(out + sequence * s.length * s.width() + head * s.head_size, log_sum_exp + i * s.length,
             head_of(qkv, s, sequence, head), s, HeadMask(mask, dropout, s, sequence, head));
    }
  });
}

// Heads that share keys and values are one thread's work, one after the other, so that the sums of
// their gradients are taken in order.
template <typename T>
void attention_backward(T* dqkv, const T* dout, const T* out, const T* log_sum_exp, const T* qkv,
                        const AttentionShape& s, const Dropout& dropout) {
  const Count sharers = s.heads / s.kv_heads;
  with_mask<T>(dropout, [&](auto mask) {
#pragma omp parallel for schedule(static)
    for (Count i = 0; i < s.sequences * s.kv_heads; ++i) {
      const Count sequence = i / s.kv_heads, first = i % s.kv_heads * sharers;
      for (Count head = first; head < first + sharers; ++head) {
        const Count offset = sequence * s.length * s.width() + head * s.head_size;
        attend_backward(head_of(dqkv, s, sequence, head), dout + offset, out + offset,
                        log_sum_exp + (sequence * s.heads + head) * s.length,
                        head_of(qkv, s, sequence, head), s,
                        HeadMask(mask, dropout, s, sequence, head), head == first ? T{0} : T{1});
      }
    }
  });
}

template void attention(float*, float*, const float*, const AttentionShape&, const Dropout&);
template void attention(double*, double*, const double*, const AttentionShape&, const Dropout&);
template void attention_backward(float*, const float*, const float*, const float*, const float*,
                                 const AttentionShape&, const Dropout&);
template void attention_backward(double*, const double*, const double*, const double*,
                                 const double*, const AttentionShape&, const Dropout&);

}  // namespace lockstep::host
