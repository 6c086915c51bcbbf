// The sizes of the tiles that attention works in, and what they need. Plain arithmetic: no CUDA
// here.
#pragma once

#include "collectives/base/cuda/geometry.h"
#include "models/backend.h"

namespace lockstep::cuda {

inline constexpr Count attention_block_threads = 128;

// A line of blocks: for each of `heads` of each sequence its tiles of rows, one after the other.
constexpr Geometry block_per_tile(const AttentionShape& s, Count heads, Count rows,
                                  Count shared_bytes) {
  return {.grid = {static_cast<std::uint32_t>(divide_up(s.length, rows) * s.sequences * heads)},
          .block = {attention_block_threads},
          .shared_bytes = shared_bytes};
}

// Forward: a block has `queries` rows, each of its four warps a quarter, and goes over tiles of
// `keys`, of which two are in shared memory.
template <int head_size>
struct ForwardTiles {
  static constexpr int warp_rows = 32, queries = 4 * warp_rows, keys = head_size == 128 ? 32 : 64;

  static constexpr Geometry geometry(const AttentionShape& s) {
    return block_per_tile(s, s.heads, queries, (queries + 2 * 2 * keys) * head_size * 2);
  }
};

// Backward for keys and values: a block has `keys` rows and goes over tiles of `queries` from the
// diagonal on, of which two are in shared memory, with two statistics of each row.
template <int head_size>
struct KeyTiles {
  static constexpr int warp_rows = head_size == 128 ? 16 : 32, keys = 4 * warp_rows,
                       queries = head_size == 128 ? 32 : 64;

  static constexpr Geometry geometry(const AttentionShape& s) {
    return block_per_tile(s, s.kv_heads, keys,
                          (2 * keys + 2 * 2 * queries) * head_size * 2 + 2 * 2 * queries * 4);
  }
};

// Backward for queries: as forward, with the gradient of the result beside the queries.
template <int head_size>
struct QueryTiles {
  static constexpr int warp_rows = head_size == 128 ? 16 : 32, queries = 4 * warp_rows,
                       keys = head_size == 128 ? 32 : 64;

  static constexpr Geometry geometry(const AttentionShape& s) {
    return block_per_tile(s, s.heads, queries, (2 * queries + 2 * 2 * keys) * head_size * 2);
  }
};

// By plain arithmetic: a block has `rows` rows of a head and goes over tiles of `others`, all in
// shared memory as numbers of `wide` bytes, one more than a row has between rows.
struct PlainTiles {
  static constexpr Count warps = 4, warp_rows = 4, rows = warps * warp_rows, others = 32,
                         most_head_size = 256;

  // Within the shared memory that every device since sm_80 has; of elements of that many bytes.
  static constexpr Count most_head_size_of(Count element) { return element == 8 ? 128 : 256; }
  static constexpr Geometry forward(const AttentionShape& s, Count wide) {
    return block_per_tile(s, s.heads, rows,
                          ((rows + 2 * others) * (s.head_size + 1) + rows * others) * wide);
  }
  // `heads` are those that rows belong to: of queries, or of keys and values.
  static constexpr Geometry backward(const AttentionShape& s, Count heads, Count wide) {
    return block_per_tile(s, heads, rows,
                          ((2 * rows + 2 * others) * (s.head_size + 1) + 2 * rows * others) * wide);
  }
};

}  // namespace lockstep::cuda
