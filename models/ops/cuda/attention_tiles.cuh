// Shared by the attention kernels on tensor cores: tiles of rows in shared memory, products of tiles
// by warps, and the place of a head in memory.
#pragma once

#include "models/ops/cuda/attention_operands.cuh"
#include "models/ops/cuda/first_keys.cuh"
#include "models/ops/cuda/kernels.h"
#include "models/ops/cuda/ptx.cuh"
#include "models/ops/dropout_mask.h"

namespace lockstep::cuda {

inline constexpr int attention_threads = 128;
inline constexpr float log2_e = 1.44269504088896341F;

// Calls function(T*, head size as a type) for the types and head sizes that have these kernels.
template <typename Function>
void with_tensor_type(DType dtype, Count head_size, Function function) {
  const auto with_head_size = [&](auto* type) {
    if (head_size == 32) return function(type, std::integral_constant<int, 32>());
    if (head_size == 64) return function(type, std::integral_constant<int, 64>());
    return function(type, std::integral_constant<int, 128>());
  };
  if (dtype == DType::bf16) return with_head_size(static_cast<__nv_bfloat16*>(nullptr));
  return with_head_size(static_cast<__half*>(nullptr));
}

// A kernel's arguments in addition to memory. The same for every block.
struct AttentionCall {
  int queries, keys;  // rows of each sequence
  int heads, kv_heads;
  float scale;           // 1 / sqrt(head size)
  FirstKeys first_keys;  // of all sequences
  KeyEnds key_ends;
  // Dropout. The index of the probability of a query and a key of head h of sequence s is
  // first_index + (s length all_heads + h) length + position of the query * all_heads length
  // + position of the key.
  host::DropoutMask<float> mask;
  bool masks;
  Count first_index, all_heads, length;
  Positions query_positions, key_positions;

  AttentionCall(const AttentionPart& p, const SeenKeys& seen, const Dropout& d)
      : queries(static_cast<int>(p.queries.count())),
        keys(static_cast<int>(p.keys.count())),
        heads(static_cast<int>(p.heads)),
        kv_heads(static_cast<int>(p.kv_heads)),
        scale(1.0F / std::sqrt(static_cast<float>(p.head_size))),
        first_keys{seen.first, p.queries.count()},
        key_ends{seen.end, p.queries.count()},
        mask(d),
        masks(d.rate > 0),
        first_index((d.first_row * d.all_heads + d.first_head) * p.length),
        all_heads(d.all_heads),
        length(p.length),
        query_positions(p.queries),
        key_positions(p.keys) {}

  // The first index of a head of a sequence.
  __device__ Count index_of(int sequence, int head) const {
    return first_index + (static_cast<Count>(sequence) * length * all_heads + head) * length;
  }
  __device__ Count index(Count of_head, int query, int key) const {
    return of_head + query_positions[query] * all_heads * length + key_positions[key];
  }
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
  __device__ void begin_load(const T* from, Count stride, int first, int count) const {
#pragma unroll
    for (int i = threadIdx.x; i < rows * units; i += attention_threads) {
      const int row = i / units, u = i % units;
      const bool there = first + row < count;
      // A valid address, even if nothing is read from it.
      const T* const at = from + (there ? first + row : 0) * stride + u * 8;
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

// Writes a lane's part of 16 rows. Multiplies each row by its factor. Rows from `count` on do not
// exist.
template <typename T, int pieces>
__device__ __forceinline__ void store_rows(const Results<T>& into, int first, int count,
                                           const float (&values)[pieces][4],
                                           const float (&factors)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + piece_row(2 * half);
    if (row >= count) continue;
    const Results<T> at = into.from(row, piece_column(0));
#pragma unroll
    for (int n = 0; n < pieces; ++n) {
      const float low = values[n][2 * half] * factors[half],
                  high = values[n][2 * half + 1] * factors[half];
      if (at.rounded) {
        *reinterpret_cast<unsigned*>(at.rounded + 8 * n) = pack<T>(low, high);
      } else {
        float2& both = *reinterpret_cast<float2*>(at.exact + 8 * n);
        both = at.adds ? float2{both.x + low, both.y + high} : float2{low, high};
      }
    }
  }
}

}  // namespace lockstep::cuda
