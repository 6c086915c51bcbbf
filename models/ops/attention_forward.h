// A block of queries of one head, in blocks of keys: the softmax is taken online, with the highest
// score and the sum so far, so memory does not depend on the length. Only the log-sum-exp is kept.
//
//   for each block of keys    S = K Q^T / sqrt(d)     h' = max(h, max S)    P = exp(S - h')
//                             s = s exp(h - h') + sum P                     O = O exp(h - h') + P^T V
//   at the end                O = O / s               l = h + log s
//
// S and h are kept times log2(e), because powers of 2 are faster than those of e.
//
// Scores have a row for each key and a column for each query, so that the softmax's maximum and sum
// add up vectors, and no product needs a transposed block of keys or values.
//
// Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao,
// "FlashAttention-2", 2023.
#pragma once

#include "models/ops/attention_head.h"

namespace lockstep::host {

inline constexpr Count forward_queries = 128, forward_keys = 64;  // per block, at most
// The distance between rows of scores. Not a power of 2, which would put all rows into the same few
// sets of a cache.
inline constexpr Count forward_stride = forward_queries + 16;

// How many queries a block has. Large blocks read keys and values less often, small ones give all
// threads work. Each query's result is the same in any block.
constexpr Count queries_in_block(Count queries) {
  constexpr Count many = 1024, few = 64;
  return queries < many ? few : forward_queries;
}

template <typename T>
struct ForwardBlocks {
  Scratch<T> scratch;
  T *queries, *transposed, *keys, *values, *scores, *out, *highest, *sum, *shrink;

  explicit ForwardBlocks(Count head_size)
      : scratch(count(head_size)),
        queries(scratch.take(forward_queries * head_size)),
        transposed(scratch.take(forward_stride * head_size)),
        keys(scratch.take(forward_keys * head_size)),
        values(scratch.take(forward_keys * head_size)),
        scores(scratch.take(forward_keys * forward_stride)),
        out(scratch.take(forward_queries * head_size)),
        highest(scratch.take(forward_queries)),
        sum(scratch.take(forward_queries)),
        shrink(scratch.take(forward_queries)) {}
  static Count count(Count head_size) {
    const auto rounded = [](Count part) { return Scratch<T>::rounded(part); };
    return 2 * rounded(forward_queries * head_size) + rounded(forward_stride * head_size) +
           2 * rounded(forward_keys * head_size) + rounded(forward_keys * forward_stride) +
           3 * rounded(forward_queries);
  }
};

// The columns of the queries in `q` that see key k, counted from q.first. Queries beyond the last
// fill a vector; they see what the last one sees.
inline Range columns_seeing(const VisibleKeys& visible, Range q, Count key, Count width) {
  const Range seeing = visible.queries_of(q, {key, key + 1});
  return {seeing.first, seeing.last == q.count() ? width : seeing.last};
}

// Scores of a block become probabilities, relative to the highest so far.
template <typename T, typename Mask>
void online_softmax(ForwardBlocks<T>& b, const VisibleKeys& visible, Range q, Range k, Count width,
                    const AttentionPart& s, const HeadMask<Mask>& dropout) {
  constexpr T nothing = -std::numeric_limits<T>::infinity();
  const bool whole = visible.sees_all(q, k);
  T before[forward_queries];
  std::copy_n(b.highest, width, before);
  T* const highest = b.highest;
  for (Count key = 0; key < k.count(); ++key) {
    T* const row = b.scores + key * forward_stride;
    if (!whole) {
      const Range seeing = columns_seeing(visible, q, k.first + key, width);
      std::fill(row, row + seeing.first, nothing);
      std::fill(row + seeing.last, row + width, nothing);
    }
#pragma omp simd
    for (Count c = 0; c < width; ++c) highest[c] = std::max(highest[c], row[c]);
  }
#pragma omp simd
  for (Count c = 0; c < width; ++c) {
    const T kept = power_of_2(before[c] - highest[c]);
    b.shrink[c] = before[c] == nothing ? T{0} : kept;
    b.sum[c] *= b.shrink[c];
  }
  T* const sum = b.sum;
  Count index[forward_queries];
  if constexpr (dropout.drops)
    for (Count c = 0; c < width; ++c)
      index[c] = dropout.index_of(s.queries[std::min(q.first + c, q.last - 1)]);
  for (Count key = 0; key < k.count(); ++key) {
    T* const row = b.scores + key * forward_stride;
    if (whole) {
#pragma omp simd
      for (Count c = 0; c < width; ++c) sum[c] += row[c] = power_of_2(row[c] - highest[c]);
    } else {
      const Range seeing = columns_seeing(visible, q, k.first + key, width);
#pragma omp simd
      for (Count c = 0; c < width; ++c) {
        const T p = power_of_2(row[c] - highest[c]);
        row[c] = c >= seeing.first && c < seeing.last ? p : T{0};
        sum[c] += row[c];
      }
    }
    if constexpr (dropout.drops) {
      const Count position = s.keys[k.first + key];
#pragma omp simd
      for (Count c = 0; c < width; ++c) row[c] = dropout.mask(row[c], index[c] + position);
    }
  }
}

// Queries `q` of one head of one sequence.
template <typename T, typename Mask>
void attend(const HeadRows& out, T* log_sum_exp, const Head& h, const AttentionPart& s,
            const VisibleKeys& visible, Range q, const HeadMask<Mask>& dropout) {
  const Count size = s.head_size, width = whole_vectors<T>(q.count());
  ForwardBlocks<T> b(size);
  load_rows(b.queries, h.q, q.first, q.count(), size);
  transpose(b.transposed, forward_stride, b.queries, q.count(), size,
            std::numbers::log2e_v<T> / std::sqrt(static_cast<T>(size)));
  std::fill_n(b.out, q.count() * size, T{0});
  std::fill_n(b.sum, width, T{0});
  std::fill_n(b.highest, width, -std::numeric_limits<T>::infinity());

  const auto queries_in = [&](Range columns) {
    return Range{q.first + std::min(columns.first, q.count() - 1),
                 q.first + std::min(columns.last, q.count())};
  };
  for (Range k{visible.first[q.first], 0}; k.first < visible.seen[q.last - 1]; k.first = k.last) {
    k.last = std::min(k.first + forward_keys, visible.seen[q.last - 1]);
    load_rows(b.keys, h.k, k.first, k.count(), size);
    load_rows(b.values, h.v, k.first, k.count(), size);
    product<T, Side::rows>(
        {b.keys, size}, {b.transposed, forward_stride}, {b.scores, forward_stride}, k.count(),
        width, false, [&](Range rows, Range columns) {
          const Range keys{k.first + rows.first, k.first + rows.last};
          return Range{0, visible.sees_any(queries_in(columns), keys) ? size : 0};
        });
    online_softmax(b, visible, q, k, width, s, dropout);
    for (Count r = 0; r < q.count(); ++r)
      if (b.shrink[r] != 1)
        for (Count c = 0; c < size; ++c) b.out[r * size + c] *= b.shrink[r];
    product<T, Side::columns>(
        {b.scores, forward_stride}, {b.values, size}, {b.out, size}, q.count(), size, true,
        [&](Range rows, Range) { return visible.keys_of(queries_in(rows), k); });
  }
  for (Count r = 0; r < q.count(); ++r) {
    const T sum = b.sum[r], normalise = sum > 0 ? T{1} / sum : T{0};
    for (Count c = 0; c < size; ++c) b.out[r * size + c] *= normalise;
    log_sum_exp[q.first + r] = b.highest[r] * std::numbers::ln2_v<T> + std::log(sum);
  }
  store_rows(out, q.first, b.out, q.count(), size);
}

}  // namespace lockstep::host
