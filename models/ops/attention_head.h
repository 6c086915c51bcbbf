// One head of causal attention, in blocks of query rows. A block's scores against all its keys fit
// into the cache. So the softmax needs one sweep, and only its log-sum-exp is kept: memory grows
// with the length, not with its square.
//
//   forward    S = Q K^T / sqrt(d)    l = log sum exp S    P = exp(S - l)      O = P V
//   backward   dP = dO V^T    D = rowsum(dO * O)    dS = P * (dP - D) / sqrt(d)
//              dQ = dS K      dK += dS^T Q          dV += P^T dO
//
// Dropout masks P before the product with V, and likewise dP. D does not change: it is the sum of
// P * dP, masked or not. Positions of queries and keys increase, so a query sees the first keys up
// to some number, and a block multiplies only with the keys that its last query sees.
//
// Dao, "FlashAttention-2", 2023.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "models/ops/dropout_mask.h"
#include "models/ops/exponential.h"
#include "models/ops/kernels.h"

namespace lockstep::host {

inline constexpr Count attention_block = 64;  // query rows at a time

// Which keys a query sees. In whole sequences query i and key i are at position i.
struct Whole {
  Count length;

  Count queries() const { return length; }
  Count keys() const { return length; }
  Count position_of(Count query) const { return query; }
  Count seen_by(Count query) const { return query + 1; }
  // Calls function(begin, end, position_of_key) for ranges of the first `count` keys.
  template <typename Function>
  void for_keys(Count count, Function function) const {
    function(Count{0}, count, [](Count key) { return key; });
  }
};

// The same for given positions.
struct ByPosition {
  Positions query_positions, key_positions;

  Count queries() const { return query_positions.count(); }
  Count keys() const { return key_positions.count(); }
  Count position_of(Count query) const { return query_positions[query]; }
  Count seen_by(Count query) const { return key_positions.up_to(position_of(query)); }
  template <typename Function>
  void for_keys(Count count, Function function) const {
    Count begin = 0;
    for (const PositionRange& range : key_positions.ranges) {
      const Count end = std::min(count, begin + range.count);
      if (begin < end)
        function(begin, end, [range, begin](Count key) { return range[key - begin]; });
      begin += range.count;
    }
  }
};

// The queries, keys and values of one head of one sequence, or their gradients.
template <typename T>
struct Head {
  Strided<T> q, k, v;
};

// Dropout of the probabilities of one head of one sequence.
template <typename Mask>
struct HeadMask {
  Mask mask;
  Count first, stride;  // the index of the first query and key; the step between queries

  HeadMask(Mask m, const Dropout& d, Count length, Count sequence, Count head)
      : mask(m),
        first(((d.first_row + sequence * length) * d.all_heads + d.first_head + head) * length),
        stride(d.all_heads * length) {}
  auto of_query(Count position) const {
    return [mask = mask, index = first + position * stride](auto probability, Count key_position) {
      return mask(probability, index + key_position);
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

// scores[rows, keys] = queries first .. first + rows - 1 times the first `keys` keys, unscaled.
template <typename T>
void block_scores(T* scores, const Head<const T>& h, Count first, Count rows, Count keys,
                  Count head_size) {
  gemm(false, true, rows, keys, head_size, h.q.row(first), h.q.stride, h.k.data, h.k.stride, T{0},
       scores, keys);
}

template <typename T, typename Visible, typename Mask>
void attend(Strided<T> out, T* log_sum_exp, const Head<const T>& h, Count head_size,
            const Visible& visible, const HeadMask<Mask>& dropout) {
  const T scale = T{1} / std::sqrt(static_cast<T>(head_size));
  for (Count first = 0; first < visible.queries(); first += attention_block) {
    const Count rows = std::min(attention_block, visible.queries() - first),
                keys = visible.seen_by(first + rows - 1);
    T* const scores = scratch<T>(0, attention_block * visible.keys());
    if (keys > 0) block_scores(scores, h, first, rows, keys, head_size);
    for (Count r = 0; r < rows; ++r) {
      T* const row = scores + r * keys;
      const Count seen = visible.seen_by(first + r);
      if (seen == 0) {
        std::fill(row, row + keys, T{0});
        log_sum_exp[first + r] = -std::numeric_limits<T>::infinity();
        continue;
      }
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
      const auto masked = dropout.of_query(visible.position_of(first + r));
      visible.for_keys(seen, [&](Count begin, Count end, auto position_of) {
#pragma omp simd
        for (Count c = begin; c < end; ++c) row[c] = masked(row[c] * normalise, position_of(c));
      });
      std::fill(row + seen, row + keys, T{0});
      log_sum_exp[first + r] = highest * scale + std::log(sum);
    }
    if (keys > 0)
      gemm(false, false, rows, head_size, keys, scores, keys, h.v.data, h.v.stride, T{0},
           out.row(first), out.stride);
    else
      for (Count r = first; r < first + rows; ++r)
        std::fill(out.row(r), out.row(r) + head_size, T{0});
  }
}

// An explicit fma in f32: otherwise the compiler may fuse or not, depending on surrounding code.
inline float multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
inline double multiply_add(double a, double b, double c) { return a * b + c; }

template <typename T>
T product_of_rows(const T* a, const T* b, Count columns) {
  T product = 0;
#pragma omp simd reduction(+ : product)
  for (Count c = 0; c < columns; ++c) product = multiply_add(a[c], b[c], product);
  return product;
}

// product_of(query) = D. With beta_q 0 overwrites the gradients of queries, with 1 adds to them;
// beta_kv does the same for keys and values.
template <typename T, typename Visible, typename Mask, typename Product>
void attend_backward(const Head<T>& d, Strided<const T> dout, const T* log_sum_exp,
                     Product product_of, const Head<const T>& h, Count head_size,
                     const Visible& visible, const HeadMask<Mask>& dropout, T beta_q, T beta_kv) {
  const T scale = T{1} / std::sqrt(static_cast<T>(head_size));
  Count keys_before = 0;  // seen by earlier blocks of queries
  for (Count first = 0; first < visible.queries(); first += attention_block) {
    const Count rows = std::min(attention_block, visible.queries() - first),
                keys = visible.seen_by(first + rows - 1);
    if (keys == 0) continue;
    T *const p = scratch<T>(0, attention_block * visible.keys()), *const ds = scratch<T>(
                                                                      1, attention_block *
                                                                             visible.keys());
    block_scores(p, h, first, rows, keys, head_size);
    gemm(false, true, rows, keys, head_size, dout.row(first), dout.stride, h.v.data, h.v.stride,
         T{0}, ds, keys);
    for (Count r = 0; r < rows; ++r) {
      T *const p_row = p + r * keys, *const ds_row = ds + r * keys;
      const Count seen = visible.seen_by(first + r);
      const T product = product_of(first + r), l = log_sum_exp[first + r];
      const auto masked = dropout.of_query(visible.position_of(first + r));
      visible.for_keys(seen, [&](Count begin, Count end, auto position_of) {
#pragma omp simd
        for (Count c = begin; c < end; ++c) {
          const T p_unmasked = exponential(p_row[c] * scale - l);
          ds_row[c] = p_unmasked * (masked(ds_row[c], position_of(c)) - product) * scale;
          p_row[c] = masked(p_unmasked, position_of(c));
        }
      });
      std::fill(p_row + seen, p_row + keys, T{0});
      std::fill(ds_row + seen, ds_row + keys, T{0});
    }
    gemm(false, false, rows, head_size, keys, ds, keys, h.k.data, h.k.stride, beta_q,
         d.q.row(first), d.q.stride);
    // Keys that earlier blocks have seen already have gradients; the others are new, unless another
    // head has added to them.
    const auto add_to_keys = [&](Strided<T> into, const T* weights, Strided<const T> rows_of) {
      if (keys_before > 0)
        gemm(true, false, keys_before, head_size, rows, weights, keys, rows_of.row(first),
             rows_of.stride, T{1}, into.data, into.stride);
      if (keys > keys_before)
        gemm(true, false, keys - keys_before, head_size, rows, weights + keys_before, keys,
             rows_of.row(first), rows_of.stride, beta_kv, into.row(keys_before), into.stride);
    };
    add_to_keys(d.k, ds, h.q);
    add_to_keys(d.v, p, dout);
    keys_before = keys;
  }
}

}  // namespace lockstep::host
