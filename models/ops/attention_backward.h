// Backward of attention for the heads that share keys and values. For each block of keys, their
// gradients are summed over all heads and queries in scratch; those of the queries are added to in
// memory. So each sum has a fixed order, and only the probabilities of a pair of blocks exist.
//
//   P = exp(Q K^T / sqrt(d) - l)     dP = dO V^T     dS = P * (dP - D) / sqrt(d)     D = rowsum(dO * O)
//   dV += P^T dO                     dK += dS^T Q    dQ += dS K
//
// Dropout masks P before the product with V, and likewise dP. D does not change: it is the sum of
// P * dP, masked or not.
#pragma once

#include "models/ops/attention_head.h"

namespace lockstep::host {

inline constexpr Count backward_queries = 64, backward_keys = 256;  // per block
// See forward_stride.
inline constexpr Count backward_stride = backward_keys + 16;

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

template <typename T>
struct BackwardBlocks {
  Scratch<T> scratch;
  T *queries, *gradients;                                  // Q and dO
  T *keys, *values, *transposed_keys, *transposed_values;  // the keys' times log2(e) / sqrt(d)
  T *key_gradients, *value_gradients;
  T *probabilities, *score_gradients;
  T* query_gradients;  // f32 sums for all queries and heads, if memory holds them in 16 bits

  BackwardBlocks(Count head_size, Count gradients_count)
      : scratch(count(head_size, gradients_count)),
        queries(scratch.take(backward_queries * head_size)),
        gradients(scratch.take(backward_queries * head_size)),
        keys(scratch.take(backward_keys * head_size)),
        values(scratch.take(backward_keys * head_size)),
        transposed_keys(scratch.take(backward_stride * head_size)),
        transposed_values(scratch.take(backward_stride * head_size)),
        key_gradients(scratch.take(backward_keys * head_size)),
        value_gradients(scratch.take(backward_keys * head_size)),
        probabilities(scratch.take(backward_queries * backward_stride)),
        score_gradients(scratch.take(backward_queries * backward_stride)),
        query_gradients(scratch.take(gradients_count)) {}
  static Count count(Count head_size, Count gradients_count) {
    const auto rounded = [](Count part) { return Scratch<T>::rounded(part); };
    return 2 * rounded(backward_queries * head_size) + 4 * rounded(backward_keys * head_size) +
           2 * rounded(backward_stride * head_size) +
           2 * rounded(backward_queries * backward_stride) + rounded(gradients_count);
  }
};

// P and dS of a pair of blocks from S and dP. Zero where a query does not see the key.
template <typename T, typename Mask>
void score_gradients(BackwardBlocks<T>& b, const T* log_sum_exp, const T* products,
                     const AttentionPart& s, const VisibleKeys& visible, Range q, Range k,
                     const HeadMask<Mask>& dropout) {
  const T scale = T{1} / std::sqrt(static_cast<T>(s.head_size));
  const Count width = whole_vectors<T>(k.count());
  Count position[backward_keys];
  if constexpr (dropout.drops)
    for (Count c = 0; c < width; ++c) position[c] = s.keys[std::min(k.first + c, k.last - 1)];
  for (Count r = 0; r < q.count(); ++r) {
    T *const p = b.probabilities + r * backward_stride, *const ds =
                                                            b.score_gradients + r * backward_stride;
    const Range seen = visible.keys_of({q.first + r, q.first + r + 1}, k);
    const Count begin = seen.count() > 0 ? seen.first / vector_width<T> * vector_width<T> : width,
                end = whole_vectors<T>(std::max(seen.first, seen.last));
    const T product = products[q.first + r],
            l = log_sum_exp[q.first + r] * std::numbers::log2e_v<T>;
    const Count index = dropout.index_of(s.queries[q.first + r]);
#pragma omp simd
    for (Count c = begin; c < end; ++c) {
      const T unmasked = power_of_2(p[c] - l);
      T gradient = ds[c], masked = unmasked;
      if constexpr (dropout.drops) {
        gradient = dropout.mask(gradient, index + position[c]);
        masked = dropout.mask(unmasked, index + position[c]);
      }
      ds[c] = unmasked * (gradient - product) * scale;
      p[c] = masked;
    }
    if (seen.first == 0 && seen.last == k.count() && end == k.count()) continue;
    const auto clear = [&](Count from, Count to) {
      if (from < to) std::fill(p + from, p + to, T{0}), std::fill(ds + from, ds + to, T{0});
    };
    if (seen.count() <= 0) {
      clear(0, width);
      continue;
    }
    clear(0, seen.first);
    clear(seen.last, width);
  }
}

// Queries `q` of one head with a block of keys. `query_gradients` are those of queries q.
template <typename T, typename Mask>
void attend_backward(BackwardBlocks<T>& b, Block<T> query_gradients, const HeadRows& dout,
                     const T* log_sum_exp, const T* products, const HeadRows& queries,
                     const AttentionPart& s, const VisibleKeys& visible, Range q, Range k,
                     const HeadMask<Mask>& dropout) {
  const Count size = s.head_size, width = whole_vectors<T>(k.count());
  load_rows(b.queries, queries, q.first, q.count(), size);
  load_rows(b.gradients, dout, q.first, q.count(), size);
  const auto of = [](Range block, Range part) {
    return Range{block.first + part.first, std::min(block.first + part.last, block.last)};
  };
  const auto seen = [&](Range rows, Range columns) {
    return Range{
        0, columns.first < k.count() && visible.sees_any(of(q, rows), of(k, columns)) ? size : 0};
  };
  const bool whole = visible.sees_all(q, k);
  const auto queries_of = [&](Range rows, Range) {
    return whole ? Range{0, q.count()} : visible.queries_of(q, of(k, rows));
  };
  product<T, Side::rows>({b.queries, size}, {b.transposed_keys, backward_stride},
                         {b.probabilities, backward_stride}, q.count(), width, false, seen);
  product<T, Side::rows>({b.gradients, size}, {b.transposed_values, backward_stride},
                         {b.score_gradients, backward_stride}, q.count(), width, false, seen);
  score_gradients(b, log_sum_exp, products, s, visible, q, k, dropout);
  product<T, Side::columns>({b.probabilities, backward_stride}, {b.gradients, size},
                            {b.value_gradients, size}, k.count(), size, true, queries_of);
  product<T, Side::columns>({b.score_gradients, backward_stride}, {b.queries, size},
                            {b.key_gradients, size}, k.count(), size, true, queries_of);
  product<T, Side::rows>({b.score_gradients, backward_stride}, {b.keys, size}, query_gradients,
                         q.count(), size, true,
                         [&](Range rows, Range) { return visible.keys_of(of(q, rows), k); });
}

template <typename T>
void load_keys(BackwardBlocks<T>& b, const Head& h, Range k, Count size) {
  load_rows(b.keys, h.k, k.first, k.count(), size);
  load_rows(b.values, h.v, k.first, k.count(), size);
  transpose(b.transposed_keys, backward_stride, b.keys, k.count(), size,
            std::numbers::log2e_v<T> / std::sqrt(static_cast<T>(size)));
  transpose(b.transposed_values, backward_stride, b.values, k.count(), size, T{1});
  std::fill_n(b.key_gradients, k.count() * size, T{0});
  std::fill_n(b.value_gradients, k.count() * size, T{0});
}

}  // namespace lockstep::host
