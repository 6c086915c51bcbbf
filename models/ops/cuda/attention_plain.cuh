// Shared by the attention kernels without tensor cores: places of heads, tiles of rows in shared
// memory, and the columns of results that a lane keeps.
#pragma once

#include "models/ops/cuda/attention_geometry.h"
#include "models/ops/cuda/first_keys.cuh"
#include "models/ops/cuda/numbers.cuh"
#include "models/ops/dropout_mask.h"

namespace lockstep::cuda {

inline constexpr int warp_rows = PlainTiles::warp_rows, block_rows = PlainTiles::rows,
                     others = PlainTiles::others;
inline constexpr int lane_columns = PlainTiles::most_head_size / 32;  // of a head, per lane
static_assert(others == 32);

template <typename W>
struct PlainCall {
  AttentionShape shape;
  host::DropoutMask<W> mask;
  bool masks;
  Count first_row, first_head, all_heads;
  W scale;
  FirstKeys first_keys;  // of all sequences

  PlainCall(const AttentionShape& s, const std::int32_t* first, const Dropout& d)
      : shape(s),
        mask(d),
        masks(d.rate > 0),
        first_row(d.first_row),
        first_head(d.first_head),
        all_heads(d.all_heads),
        scale(W{1} / std::sqrt(static_cast<W>(s.head_size))),
        first_keys{first, s.length} {}

  __device__ W dropped(W x, Count sequence, Count head, Count query, Count key) const {
    if (!masks) return x;
    const Count row = first_row + sequence * shape.length + query;
    return mask(x, (row * all_heads + first_head + head) * shape.length + key);
  }
};

// The rows of a block, and their head and sequence. Tiles of a head are consecutive.
struct Place {
  Count sequence, head, first;

  __device__ Place(Count heads, Count length, Count from_tile) {
    const Count tiles = (length + block_rows - 1) / block_rows, of_all = from_tile / tiles;
    head = of_all % heads;
    sequence = of_all / heads;
    first = from_tile % tiles * block_rows;
  }
};

// Rows of a head in shared memory, `pitch` apart: an odd pitch lets lanes read a column.
template <typename W>
struct PlainTile {
  W* memory;
  int pitch;

  __device__ W* row(int r) const { return memory + r * pitch; }
  // Rows from `count` on are zero.
  template <typename T>
  __device__ void load(const T* from, Count stride, Count first, int rows, Count count,
                       int columns) const {
    for (int i = threadIdx.x; i < rows * columns; i += blockDim.x) {
      const int r = i / columns, c = i % columns;
      row(r)[c] = first + r < count ? widen(from[(first + r) * stride + c]) : W{0};
    }
  }
};

template <typename W>
struct Columns {
  W x[lane_columns] = {};

  // += factor times a row's columns of this lane
  __device__ void add(W factor, const W* row, int head_size) {
#pragma unroll
    for (int i = 0; i < lane_columns; ++i) {
      const int c = i * 32 + static_cast<int>(threadIdx.x % 32);
      if (c < head_size) x[i] += factor * row[c];
    }
  }
  template <typename T>
  __device__ void store(T* into, W factor, int head_size) const {
#pragma unroll
    for (int i = 0; i < lane_columns; ++i) {
      const int c = i * 32 + static_cast<int>(threadIdx.x % 32);
      if (c < head_size) into[c] = narrow<T>(x[i] * factor);
    }
  }
  __device__ void add_to(W* into, W factor, int head_size) const {
#pragma unroll
    for (int i = 0; i < lane_columns; ++i) {
      const int c = i * 32 + static_cast<int>(threadIdx.x % 32);
      if (c < head_size) into[c] += x[i] * factor;
    }
  }
};

// products[r] = this warp's row r times this lane's row of the other tile
template <typename W>
__device__ __forceinline__ void multiply(W (&products)[warp_rows], const PlainTile<W>& rows,
                                         const PlainTile<W>& other, int head_size) {
  const int first = static_cast<int>(threadIdx.x / 32) * warp_rows;
  const W* const mine = other.row(static_cast<int>(threadIdx.x % 32));
  for (int r = 0; r < warp_rows; ++r) products[r] = 0;
  for (int c = 0; c < head_size; ++c) {
    const W x = mine[c];
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) products[r] += rows.row(first + r)[c] * x;
  }
}

}  // namespace lockstep::cuda
