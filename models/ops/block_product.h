// Products of blocks that lie in the cache. A tile of the result stays in registers: each step of
// the sum multiplies a row of B's vectors by one number of each of A's rows. Sums are taken in the
// order of the steps whatever the tile, so that bits do not depend on how blocks are cut.
#pragma once

#include "collectives/base/dtype.h"

namespace lockstep::host {

// The compiler aligns at most to its widest vectors. With vectors of 64 bytes there are 32 registers,
// otherwise 16: a tile of so many rows keeps its sums in them.
inline constexpr int vector_bytes = __BIGGEST_ALIGNMENT__, tile_rows = vector_bytes == 64 ? 8 : 4;

template <typename T>
inline constexpr int vector_width = vector_bytes / static_cast<int>(sizeof(T));

template <typename T>
constexpr Count whole_vectors(Count count) {
  return (count + vector_width<T> - 1) / vector_width<T> * vector_width<T>;
}

// `lanes` numbers anywhere in memory.
template <typename T, int lanes>
struct VectorOf {
  using Type [[gnu::vector_size(lanes * sizeof(T)), gnu::aligned(alignof(T)), gnu::may_alias]] = T;
};

struct Range {
  Count first = 0, last = 0;  // without `last`
  constexpr Count count() const { return last - first; }
};

// Where A's element for row r and step k lies: as stored, or of the stored matrix's transpose.
enum class Side { rows, columns };

// A block of memory whose rows are `stride` elements apart.
template <typename T>
struct Block {
  T* data;
  Count stride;
};

template <typename T, Side side, int lanes, int vectors, int rows>
[[gnu::noinline]] void tile(Block<const T> a, Block<const T> b, Block<T> c, Count steps,
                            bool adds) {
  using Vector = typename VectorOf<T, lanes>::Type;
  Vector sum[rows][vectors];
  const auto vector_at = [](const T* row, int v) {
    return *reinterpret_cast<const Vector*>(row + v * lanes);
  };
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v)
      sum[r][v] = adds ? vector_at(c.data + r * c.stride, v) : Vector{};
  for (Count k = 0; k < steps; ++k) {
    const T* const of_a = a.data + (side == Side::rows ? k : k * a.stride);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const T factor = of_a[side == Side::rows ? r * a.stride : r];
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) sum[r][v] += factor * vector_at(b.data + k * b.stride, v);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v)
      *reinterpret_cast<Vector*>(c.data + r * c.stride + v * lanes) = sum[r][v];
}

// Some columns of the result: those of `vectors` vectors of B.
template <typename T, Side side, int lanes, int vectors, typename Steps>
void product_columns(Block<const T> a, Block<const T> b, Block<T> c, Count rows, Count column,
                     bool adds, const Steps& steps_of) {
  const auto rows_from = [&]<int height>(Count row) {
    const Range steps = steps_of(Range{row, row + height}, Range{column, column + lanes * vectors});
    if (steps.count() <= 0) return;
    const Count skipped = steps.first * a.stride;
    tile<T, side, lanes, vectors, height>(
        {a.data + (side == Side::rows ? row * a.stride + steps.first : skipped + row), a.stride},
        {b.data + steps.first * b.stride + column, b.stride},
        {c.data + row * c.stride + column, c.stride}, steps.count(), adds);
  };
  Count row = 0;
  for (; row + tile_rows <= rows; row += tile_rows) rows_from.template operator()<tile_rows>(row);
  if constexpr (tile_rows == 8)
    if (row + 4 <= rows) rows_from.template operator()<4>(row), row += 4;
  if (row + 2 <= rows) rows_from.template operator()<2>(row), row += 2;
  if (row < rows) rows_from.template operator()<1>(row);
}

template <typename T, Side side, int lanes, typename Steps>
void product_rest(Block<const T> a, Block<const T> b, Block<T> c, Count rows, Count columns,
                  Count column, bool adds, const Steps& steps_of) {
  if (column + lanes <= columns) {
    product_columns<T, side, lanes, 1>(a, b, c, rows, column, adds, steps_of);
    column += lanes;
  }
  if constexpr (lanes > 1)
    product_rest<T, side, lanes / 2>(a, b, c, rows, columns, column, adds, steps_of);
}

// c[rows, columns] = or += a b. steps_of(rows, columns) is the range of the sum for a tile: its
// other products are zero. A tile with an empty range is not touched.
template <typename T, Side side, typename Steps>
void product(Block<const T> a, Block<const T> b, Block<T> c, Count rows, Count columns, bool adds,
             const Steps& steps_of) {
  constexpr int lanes = vector_width<T>, pair = 2 * lanes;
  Count column = 0;
  for (; column + pair <= columns; column += pair)
    product_columns<T, side, lanes, 2>(a, b, c, rows, column, adds, steps_of);
  product_rest<T, side, lanes>(a, b, c, rows, columns, column, adds, steps_of);
}

}  // namespace lockstep::host
