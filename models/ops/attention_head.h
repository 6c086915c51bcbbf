// Shared by forward and backward of attention: where a head's rows lie, which keys each query sees,
// and the scratch of a thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <numbers>
#include <utility>
#include <vector>

#include "models/ops/block_product.h"
#include "models/ops/convert.h"
#include "models/ops/dropout_mask.h"
#include "models/ops/exponential.h"
#include "models/ops/kernels.h"

namespace lockstep::host {

// Rows in memory, of the type that is computed in or of 16 bits, `stride` elements apart.
struct HeadRows {
  std::byte* data = nullptr;
  Count stride = 0;
  DType dtype = DType::f32;

  HeadRows() = default;
  HeadRows(Slice slice, Count s) : data(slice.data), stride(s), dtype(slice.dtype) {}
  explicit HeadRows(const Matrix& matrix) : HeadRows(matrix.slice, matrix.stride) {}

  HeadRows at(Count row, Count column) const {
    HeadRows other = *this;
    other.data += (row * stride + column) * element_bytes(dtype);
    return other;
  }
  template <typename T>
  T* row(Count r) const {
    return reinterpret_cast<T*>(data) + r * stride;
  }
};

// The queries, keys and values of one head of one sequence, or their gradients.
struct Head {
  HeadRows q, k, v;
};

// Rows are short: a call of memcpy for each would take longer than the copy.
template <typename T>
void copy_row(T* into, const T* from, Count columns) {
  using Vector = typename VectorOf<T, vector_width<T>>::Type;
  Count c = 0;
  for (; c + vector_width<T> <= columns; c += vector_width<T>)
    *reinterpret_cast<Vector*>(into + c) = *reinterpret_cast<const Vector*>(from + c);
  for (; c < columns; ++c) into[c] = from[c];
}

// Copies rows to or from dense memory, and converts those of 16 bits.
template <typename T>
void load_rows(T* into, const HeadRows& from, Count first, Count rows, Count columns) {
  for (Count r = 0; r < rows; ++r, into += columns) {
    if (from.dtype == dtype_of<T>())
      copy_row(into, from.row<T>(first + r), columns);
    else if constexpr (std::is_same_v<T, float>) {
      if (from.dtype == DType::bf16)
        widen(into, from.row<BFloat16>(first + r), columns);
      else
        widen(into, from.row<Half>(first + r), columns);
    }
  }
}
template <typename T>
void store_rows(const HeadRows& into, Count first, const T* from, Count rows, Count columns) {
  for (Count r = 0; r < rows; ++r, from += columns) {
    if (into.dtype == dtype_of<T>())
      copy_row(into.row<T>(first + r), from, columns);
    else if constexpr (std::is_same_v<T, float>) {
      if (into.dtype == DType::bf16)
        narrow(into.row<BFloat16>(first + r), from, columns);
      else
        narrow(into.row<Half>(first + r), from, columns);
    }
  }
}

// Transposes a square of `lanes` rows: swaps its upper right quarter with its lower left one, `half`
// numbers wide, then does the same in each quarter.
template <int half, int lanes, typename Vector>
void exchange_squares(Vector (&rows)[lanes]) {
  if constexpr (half > 0) {
#pragma GCC unroll 16
    for (int r = 0; r < lanes; ++r)
      if ((r & half) == 0) [&]<int... c>(std::integer_sequence<int, c...>) {
          const Vector upper = rows[r], lower = rows[r + half];
          rows[r] = __builtin_shufflevector(upper, lower, (c & half ? lanes + c - half : c)...);
          rows[r + half] =
              __builtin_shufflevector(upper, lower, (c & half ? lanes + c : c + half)...);
        }
    (std::make_integer_sequence<int, lanes>());
    exchange_squares<half / 2, lanes>(rows);
  }
}

// into[columns, stride] = the transpose of from[rows, columns], times `factor`. The rows are filled
// up with zeros to whole vectors.
template <typename T>
void transpose(T* into, Count stride, const T* from, Count rows, Count columns, T factor) {
  constexpr int lanes = vector_width<T>;
  using Vector = typename VectorOf<T, lanes>::Type;
  const Count whole_rows = rows / lanes * lanes, whole_columns = columns / lanes * lanes;
  for (Count r = 0; r < whole_rows; r += lanes)
    for (Count c = 0; c < whole_columns; c += lanes) {
      Vector square[lanes];
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i)
        square[i] = *reinterpret_cast<const Vector*>(from + (r + i) * columns + c) * factor;
      exchange_squares<lanes / 2, lanes>(square);
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i)
        *reinterpret_cast<Vector*>(into + (c + i) * stride + r) = square[i];
    }
  for (Count c = 0; c < columns; ++c) {
    T* const row = into + c * stride;
    for (Count r = c < whole_columns ? whole_rows : 0; r < rows; ++r)
      row[r] = from[r * columns + c] * factor;
    std::fill(row + rows, row + whole_vectors<T>(rows), T{0});
  }
}

// The keys that the queries of one sequence see: first[q] .. seen[q] - 1. Both increase with q,
// because positions do.
struct VisibleKeys {
  const Count *first, *seen;

  // Whether queries `q` see all of the keys `k`, or any of them.
  bool sees_all(Range q, Range k) const {
    return seen[q.first] >= k.last && first[q.last - 1] <= k.first;
  }
  bool sees_any(Range q, Range k) const {
    return seen[q.last - 1] > k.first && first[q.first] < k.last;
  }
  // The keys among `k` that some of the queries see, counted from k.first.
  Range keys_of(Range q, Range k) const {
    return {std::max(first[q.first], k.first) - k.first,
            std::min(seen[q.last - 1], k.last) - k.first};
  }
  // The queries among `q` that see some of the keys, counted from q.first.
  Range queries_of(Range q, Range k) const {
    const auto begin = std::upper_bound(seen + q.first, seen + q.last, k.first),
               end = std::lower_bound(first + q.first, first + q.last, k.last);
    return {begin - (seen + q.first), end - (first + q.first)};
  }
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
  // The index of the key at position 0.
  Count index_of(Count query_position) const { return first + query_position * stride; }
  static constexpr bool drops = !std::is_same_v<Mask, KeepAll>;
};

// A thread's scratch, kept between calls, in parts that begin at a line of the cache.
template <typename T>
class Scratch {
 public:
  explicit Scratch(Count count) {
    thread_local Memory memory;
    memory.ensure(count);
    next_ = memory.data.get();
  }
  static constexpr Count rounded(Count count) { return (count + in_line - 1) / in_line * in_line; }
  T* take(Count count) {
    T* const part = next_;
    next_ += rounded(count);
    return part;
  }

 private:
  static constexpr Count line = 64, in_line = line / static_cast<Count>(sizeof(T));
  struct Free {
    void operator()(T* data) const { operator delete[](data, std::align_val_t{line}); }
  };
  struct Memory {
    std::unique_ptr<T[], Free> data;
    Count count = 0;

    void ensure(Count needed) {
      if (needed <= count) return;
      data.reset();
      data.reset(new (std::align_val_t{line}) T[static_cast<std::size_t>(needed)]);
      count = needed;
    }
  };
  T* next_;
};

}  // namespace lockstep::host
