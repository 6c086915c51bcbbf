// Shared by the attention kernels on tensor cores: tiles of rows in shared memory, products of tiles
// by warps, and the place of a head in memory.
#pragma once

#include "models/ops/cuda/first_keys.cuh"
#include "models/ops/cuda/numbers.cuh"
#include "models/ops/cuda/ptx.cuh"
#include "models/ops/dropout_mask.h"

namespace lockstep::cuda {

inline constexpr int attention_threads = 128;
inline constexpr float log2_e = 1.44269504088896341F;

// A kernel's arguments in addition to memory. The same for every block.
struct AttentionCall {
  int length, heads, kv_heads, stride, width, kv_width;
  float scale;  // 1 / sqrt(head size)
  // Dropout. The index of the first probability of head h of sequence s is
  // first + (s length all_heads + h) length; each further query adds all_heads length.
  host::DropoutMask<float> mask;
  bool masks;
  Count first_index, all_heads;
  FirstKeys first_keys;  // of all sequences

  AttentionCall(const AttentionShape& s, const std::int32_t* first, const Dropout& d)
      : length(static_cast<int>(s.length)),
        heads(static_cast<int>(s.heads)),
        kv_heads(static_cast<int>(s.kv_heads)),
        stride(static_cast<int>(s.qkv_width())),
        width(static_cast<int>(s.width())),
        kv_width(static_cast<int>(s.kv_width())),
        scale(1.0F / std::sqrt(static_cast<float>(s.head_size))),
        mask(d),
        masks(d.rate > 0),
        first_index((d.first_row * d.all_heads + d.first_head) * s.length),
        all_heads(d.all_heads),
        first_keys{first, s.length} {}

  // The index of the probability of the first query and key.
  __device__ Count index_of(int sequence, int head) const {
    return first_index + (static_cast<Count>(sequence) * length * all_heads + head) * length;
  }
  __device__ Count index_stride() const { return all_heads * length; }
  __device__ int kv_head(int head) const { return head / (heads / kv_heads); }
};

// `rows` rows of `columns` 16-bit elements in shared memory. The order of a row's 16-byte units
// changes from row to row, so that eight rows that are read at the same time lie in different banks.
template <typename T, int rows, int columns>
struct Tile {
  static constexpr int units = columns / 8, bytes = rows * columns * 2;
  T* memory;

  __device__ T* unit(int row, int unit) const {
    const int turn = units >= 8 ? row % 8 : row / (8 / units) % units;
    return memory + row * columns + (unit ^ turn) * 8;
  }

  // Begins to fill the tile with rows `first` .. of memory whose rows are `stride` apart. Rows from
  // `count` on are zero.
  __device__ void begin_load(const T* from, int stride, int first, int count) const {
#pragma unroll
    for (int i = threadIdx.x; i < rows * units; i += attention_threads) {
      const int row = i / units, u = i % units;
      const bool there = first + row < count;
      // A valid address, even if nothing is read from it.
      const T* const at = from + static_cast<Count>(there ? first + row : 0) * stride + u * 8;
      begin_copy(unit(row, u), at, there);
    }
  }

  // A left factor: rows row .. row + 15, columns 16 k ..
  __device__ void left(unsigned (&a)[4], int row, int k) const {
    const int lane = threadIdx.x % 32;
    load_matrices(a, unit(row + lane % 16, 2 * k + lane / 16));
  }
  // The transposed tile as a right factor: its columns are rows row .. row + 15 of the tile, its
  // rows are columns 16 k .. ; words 0 and 1 are the first 8 columns, 2 and 3 the others.
  __device__ void right_transposed(unsigned (&b)[4], int row, int k) const {
    const int lane = threadIdx.x % 32;
    load_matrices(b, unit(row + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
  }
  // The tile as a right factor: its rows row .. row + 15, columns 16 n ..; words as above.
  __device__ void right(unsigned (&b)[4], int row, int n) const {
    const int lane = threadIdx.x % 32;
    load_transposed_matrices(b, unit(row + lane % 16, 2 * n + lane / 16));
  }
};

// In a 16 x 8 piece of a product: the row and the column of a lane's element i.
__device__ __forceinline__ int piece_row(int i) {
  return static_cast<int>(threadIdx.x % 32) / 4 + i / 2 * 8;
}
__device__ __forceinline__ int piece_column(int i) {
  return static_cast<int>(threadIdx.x % 4) * 2 + i % 2;
}

// [16, 16] of scores, or of values computed from them.
using Pair = float[2][4];

// One bit for each of a lane's elements of pairs [pieces][2][4]: whether dropout keeps it. Used for
// both the probabilities and their gradients.
template <int pieces>
struct Kept {
  static_assert(pieces * 8 <= 32);
  unsigned bits = 0;
  float scale;

  // index_of(piece, n, i) is the index of the probability.
  template <typename Index>
  __device__ Kept(const host::DropoutMask<float>& mask, Index index_of) : scale(mask.scale()) {
#pragma unroll
    for (int m = 0; m < pieces; ++m)
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (!mask.drops(index_of(m, n, i))) bits |= 1u << (8 * m + 4 * n + i);
  }
  __device__ void apply(Pair (&values)[pieces]) const {
#pragma unroll
    for (int m = 0; m < pieces; ++m)
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          values[m][n][i] = bits >> (8 * m + 4 * n + i) & 1 ? values[m][n][i] * scale : 0.0F;
  }
};

// Rounds two neighbouring pieces [16, 16] to a left factor.
template <typename T>
__device__ __forceinline__ void as_left(unsigned (&a)[4], const float (&low)[4],
                                        const float (&high)[4]) {
  a[0] = pack<T>(low[0], low[1]);
  a[1] = pack<T>(low[2], low[3]);
  a[2] = pack<T>(high[0], high[1]);
  a[3] = pack<T>(high[2], high[3]);
}

// Writes a lane's part of 16 rows of `columns` to memory whose rows are `stride` apart. Multiplies
// each row by its factor. Rows from `count` on do not exist.
template <typename T, int pieces>
__device__ __forceinline__ void store_rows(T* into, int stride, int first, int count,
                                           const float (&values)[pieces][4],
                                           const float (&factors)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + piece_row(2 * half);
    if (row >= count) continue;
    T* const at = into + static_cast<Count>(row) * stride + piece_column(0);
#pragma unroll
    for (int n = 0; n < pieces; ++n)
      *reinterpret_cast<unsigned*>(at + 8 * n) =
          pack<T>(values[n][2 * half] * factors[half], values[n][2 * half + 1] * factors[half]);
  }
}

}  // namespace lockstep::cuda
