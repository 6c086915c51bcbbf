// The tile sizes of attention, and the memory they need. Plain arithmetic, without CUDA.
#pragma once

#include "collectives/base/cuda/geometry.h"
#include "models/backend.h"

namespace lockstep::cuda {

inline constexpr Count attention_block_threads = 128;

// A one-dimensional grid: the tiles of rows of each of `heads` of each sequence, in order.
constexpr Geometry block_per_tile(const AttentionShape& s, Count heads, Count rows,
                                  Count shared_bytes) {
  return {.grid = {static_cast<std::uint32_t>(divide_up(s.length, rows) * s.sequences * heads)},
          .block = {attention_block_threads},
          .shared_bytes = shared_bytes};
}

// Forward: a block has `queries` rows, a quarter for each of its four warps, and iterates over tiles
// of `keys`, two of which are in shared memory.
template <int head_size>
struct ForwardTiles {
  static constexpr int warp_rows = 32, queries = 4 * warp_rows, keys = head_size == 128 ? 32 : 64;

  static constexpr Geometry geometry(const AttentionShape& s) {
    return block_per_tile(s, s.heads, queries, (queries + 2 * 2 * keys) * head_size * 2);
  }
};

// Backward for keys and values: a block has `keys` rows and iterates over tiles of `queries` from the
// diagonal on, two of which are in shared memory, with two statistics of each row.
template <int head_size>
struct KeyTiles {
  static constexpr int warp_rows = head_size == 128 ? 16 : 32, keys = 4 * warp_rows,
                       queries = head_size == 128 ? 32 : 64;

  static constexpr Geometry geometry(const AttentionShape& s) {
    return block_per_tile(s, s.kv_heads, keys,
                          (2 * keys + 2 * 2 * queries) * head_size * 2 + 2 * 2 * queries * 4);
  }
};

// Backward for queries: as forward, with the gradient of the result in addition to the queries.
template <int head_size>
struct QueryTiles {
  static constexpr int warp_rows = head_size == 128 ? 16 : 32, queries = 4 * warp_rows,
                       keys = head_size == 128 ? 32 : 64;

  static constexpr Geometry geometry(const AttentionShape& s) {
    return block_per_tile(s, s.heads, queries, (2 * queries + 2 * 2 * keys) * head_size * 2);
  }
};

// Without tensor cores: a block has `rows` rows of a head and iterates over tiles of `others`, all in
// shared memory as numbers of `wide` bytes, with one element of padding between rows.
struct PlainTiles {
  static constexpr Count warps = 4, warp_rows = 4, rows = warps * warp_rows, others = 32,
                         most_head_size = 256;

  // Fits the shared memory of every device since sm_80, for elements of that many bytes.
  static constexpr Count most_head_size_of(Count element) { return element == 8 ? 128 : 256; }
  static constexpr Geometry forward(const AttentionShape& s, Count wide) {
    return block_per_tile(s, s.heads, rows,
                          ((rows + 2 * others) * (s.head_size + 1) + rows * others) * wide);
  }
  // `heads` is the number of heads that rows belong to: query heads, or key/value heads.
  static constexpr Geometry backward(const AttentionShape& s, Count heads, Count wide) {
    return block_per_tile(s, heads, rows,
                          ((2 * rows + 2 * others) * (s.head_size + 1) + 2 * rows * others) * wide);
  }
};

}  // namespace lockstep::cuda
