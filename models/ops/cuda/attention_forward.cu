// Causal attention on tensor cores, forward. Dao, "FlashAttention-2", 2023: a block has a tile of
// queries and iterates over the tiles of keys that they see. A warp keeps its rows of the
// result, their highest scores and the sums of their exponentials in registers. The copy of the next
// tile of keys and values overlaps with the products.
#include <limits>

#include "collectives/base/cuda/launch.cuh"
#include "collectives/base/cuda/shared_memory.cuh"
#include "models/ops/cuda/attention_geometry.h"
#include "models/ops/cuda/attention_kernels.h"
#include "models/ops/cuda/attention_tiles.cuh"

namespace lockstep::cuda {
namespace {

// [rows of a warp: pieces_m x 16][keys of a tile: pieces_n x 8]
template <int pieces_m, int pieces_n>
using Scores = float[pieces_m][pieces_n][4];

template <typename T, int head_size>
class ForwardWarp {
 public:
  using Sizes = ForwardTiles<head_size>;
  static constexpr int pieces_m = Sizes::warp_rows / 16, pieces_n = Sizes::keys / 8,
                       pieces_d = head_size / 8;
  using KeyTile = Tile<T, Sizes::keys, head_size>;
  using QueryTile = Tile<T, Sizes::queries, head_size>;

  __device__ ForwardWarp(const AttentionCall& call, FirstKeys first_keys, QueryTile queries,
                         int first_query)
      : call_(call),
        first_keys_(first_keys),
        ends_(call.key_ends),
        queries_(queries),
        first_(first_query) {
#pragma unroll
    for (int m = 0; m < pieces_m; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        highest_[m][h] = std::numeric_limits<float>::lowest();
        sum_[m][h] = 0;
      }
#pragma unroll
      for (int n = 0; n < pieces_d; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out_[m][n][i] = 0;
    }
  }

  // Adds the contribution of the keys from first_key on.
  __device__ void add(KeyTile keys, KeyTile values, int first_key, Count index) {
    if (first_key >= ends_[first_ + Sizes::warp_rows - 1]) return;  // no row of this warp sees them
    Scores<pieces_m, pieces_n> scores = {};
    score(scores, keys);
    if (first_key + Sizes::keys > ends_[first_]) hide_later_keys(scores, first_key);
    if (first_key < first_keys_[first_ + Sizes::warp_rows - 1])
      hide_earlier_documents(scores, first_key);
    exponentiate(scores);
    if (call_.masks) drop(scores, first_key, index);
    gather(scores, values);
  }

  // For a row that has seen no key, the sum is 0.
  __device__ void finish(const Results<T>& out, float* log_sum_exp) {
#pragma unroll
    for (int m = 0; m < pieces_m; ++m) {
      float factors[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float sum = sum_[m][h];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        factors[h] = sum > 0 ? 1.0F / sum : 0.0F;
        const int row = first_ + 16 * m + piece_row(2 * h);
        if (threadIdx.x % 4 == 0 && row < call_.queries)
          log_sum_exp[row] = sum > 0 ? highest_[m][h] * call_.scale + logf(sum) : -INFINITY;
      }
      store_rows(out, first_ + 16 * m, call_.queries, out_[m], factors);
    }
  }

 private:
  // Reads the queries again for each tile: registers are scarce, and shared memory is fast.
  __device__ void score(Scores<pieces_m, pieces_n>& scores, KeyTile keys) const {
#pragma unroll
    for (int k = 0; k < head_size / 16; ++k) {
      unsigned q[pieces_m][4];
#pragma unroll
      for (int m = 0; m < pieces_m; ++m) queries_.left(q[m], own_row() + 16 * m, k);
#pragma unroll
      for (int n = 0; n < pieces_n; n += 2) {
        unsigned b[4];
        keys.right_transposed(b, 8 * n, k);
#pragma unroll
        for (int m = 0; m < pieces_m; ++m) {
          multiply_add<T>(scores[m][n], q[m], b[0], b[1]);
          multiply_add<T>(scores[m][n + 1], q[m], b[2], b[3]);
        }
      }
    }
  }

  __device__ void hide_later_keys(Scores<pieces_m, pieces_n>& scores, int first_key) const {
#pragma unroll
    for (int m = 0; m < pieces_m; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int seen = ends_[first_ + 16 * m + piece_row(2 * h)] - first_key;
#pragma unroll
        for (int n = 0; n < pieces_n; ++n)
#pragma unroll
          for (int i = 2 * h; i < 2 * h + 2; ++i)
            if (8 * n + piece_column(i) >= seen) scores[m][n][i] = -INFINITY;
      }
  }

  __device__ void hide_earlier_documents(Scores<pieces_m, pieces_n>& scores, int first_key) const {
#pragma unroll
    for (int m = 0; m < pieces_m; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int hidden = first_keys_[first_ + 16 * m + piece_row(2 * h)] - first_key;
#pragma unroll
        for (int n = 0; n < pieces_n; ++n)
#pragma unroll
          for (int i = 2 * h; i < 2 * h + 2; ++i)
            if (8 * n + piece_column(i) < hidden) scores[m][n][i] = -INFINITY;
      }
  }

  // Scores become exponentials relative to their row's highest. Scales earlier sums down to the new
  // highest.
  __device__ void exponentiate(Scores<pieces_m, pieces_n>& scores) {
    const float factor = call_.scale * log2_e;
#pragma unroll
    for (int m = 0; m < pieces_m; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float highest = highest_[m][h];
#pragma unroll
        for (int n = 0; n < pieces_n; ++n)
          highest = fmaxf(highest, fmaxf(scores[m][n][2 * h], scores[m][n][2 * h + 1]));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
        const float shrink = exp2_fast((highest_[m][h] - highest) * factor);
        const float offset = highest * factor;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < pieces_n; ++n)
#pragma unroll
          for (int i = 2 * h; i < 2 * h + 2; ++i) {
            scores[m][n][i] = exp2_fast(scores[m][n][i] * factor - offset);
            sum += scores[m][n][i];
          }
        sum_[m][h] = sum_[m][h] * shrink + sum;
        highest_[m][h] = highest;
#pragma unroll
        for (int n = 0; n < pieces_d; ++n)
#pragma unroll
          for (int i = 2 * h; i < 2 * h + 2; ++i) out_[m][n][i] *= shrink;
      }
  }

  __device__ void drop(Scores<pieces_m, pieces_n>& scores, int first_key, Count index) const {
#pragma unroll
    for (int m = 0; m < pieces_m; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first_ + 16 * m + piece_row(2 * h);
#pragma unroll
        for (int n = 0; n < pieces_n; ++n)
#pragma unroll
          for (int i = 2 * h; i < 2 * h + 2; ++i)
            scores[m][n][i] = call_.mask(
                scores[m][n][i], call_.index(index, row, first_key + 8 * n + piece_column(i)));
      }
  }

  __device__ void gather(const Scores<pieces_m, pieces_n>& scores, KeyTile values) {
#pragma unroll
    for (int k = 0; k < pieces_n / 2; ++k) {
      unsigned p[pieces_m][4];
#pragma unroll
      for (int m = 0; m < pieces_m; ++m) as_left<T>(p[m], scores[m][2 * k], scores[m][2 * k + 1]);
#pragma unroll
      for (int n = 0; n < pieces_d; n += 2) {
        unsigned b[4];
        values.right(b, 16 * k, n / 2);
#pragma unroll
        for (int m = 0; m < pieces_m; ++m) {
          multiply_add<T>(out_[m][n], p[m], b[0], b[1]);
          multiply_add<T>(out_[m][n + 1], p[m], b[2], b[3]);
        }
      }
    }
  }

  __device__ int own_row() const { return static_cast<int>(threadIdx.x / 32) * Sizes::warp_rows; }

  const AttentionCall& call_;
  FirstKeys first_keys_;
  KeyEnds ends_;
  QueryTile queries_;
  int first_;  // query of this warp
  // Finite also for a row that has seen no key yet, so that exponentials of hidden keys are 0.
  float highest_[pieces_m][2], sum_[pieces_m][2];
  float out_[pieces_m][pieces_d][4];
};

template <typename T, int head_size>
__global__ void __launch_bounds__(attention_threads)
    forward_kernel(Results<T> out, float* log_sum_exp, Operands<T> in, const AttentionCall call) {
  using Warp = ForwardWarp<T, head_size>;
  using Sizes = ForwardTiles<head_size>;
  // Tiles of later queries see more keys, so they begin first. Tiles of a head are consecutive, so
  // that they find its keys and values in the cache.
  const int query_tiles = (call.queries + Sizes::queries - 1) / Sizes::queries;
  const int of_all = static_cast<int>(blockIdx.x / query_tiles);
  const int head = of_all % call.heads, sequence = of_all / call.heads;
  const int first_query =
      (query_tiles - 1 - static_cast<int>(blockIdx.x % query_tiles)) * Sizes::queries;
  T* const shared = dynamic_shared<T>();
  const typename Warp::QueryTile queries{shared};
  const auto keys_at = [&](int stage) {
    return typename Warp::KeyTile{shared + (Sizes::queries + 2 * stage * Sizes::keys) * head_size};
  };
  const auto values_at = [&](int stage) {
    return typename Warp::KeyTile{shared +
                                  (Sizes::queries + (2 * stage + 1) * Sizes::keys) * head_size};
  };
  const Count first_row = static_cast<Count>(sequence) * call.queries,
              first_key_row = static_cast<Count>(sequence) * call.keys;
  const T* const k = in.k.row(first_key_row) + call.kv_head(head) * head_size;
  const T* const v = in.v.row(first_key_row) + call.kv_head(head) * head_size;
  const int seen = call.key_ends[min(first_query + Sizes::queries, call.queries) - 1];
  const FirstKeys first_keys = call.first_keys.of_sequence(sequence);
  const int first_tile = first_keys[first_query] / Sizes::keys,
            tiles = (seen + Sizes::keys - 1) / Sizes::keys;

  queries.begin_load(in.q.row(first_row) + head * head_size, in.q.stride, first_query,
                     call.queries);
  const auto begin_load = [&](int t) {
    if (t < tiles) {
      keys_at(t % 2).begin_load(k, in.k.stride, t * Sizes::keys, call.keys);
      values_at(t % 2).begin_load(v, in.v.stride, t * Sizes::keys, call.keys);
    }
    commit_copies();
  };
  begin_load(first_tile);
  Warp warp(call, first_keys, queries,
            first_query + static_cast<int>(threadIdx.x / 32) * Sizes::warp_rows);
  const Count index = call.index_of(sequence, head);
  for (int t = first_tile; t < tiles; ++t) {
    wait_for_copies<0>();
    __syncthreads();  // tile t has arrived, and no thread uses the tile that the next one replaces
    begin_load(t + 1);
    warp.add(keys_at(t % 2), values_at(t % 2), t * Sizes::keys, index);
  }
  warp.finish(out.from(first_row, head * head_size),
              log_sum_exp + static_cast<Count>(of_all) * call.queries);
}

}  // namespace

void tensor_attention(cudaStream_t stream, const Matrix& out, Slice log_sum_exp, const Matrix& q,
                      const Matrix& k, const Matrix& v, const AttentionPart& part,
                      const SeenKeys& seen, const Dropout& dropout) {
  with_tensor_type(q.slice.dtype, part.head_size, [&]<typename T>(T*, auto head_size) {
    launch(forward_kernel<T, head_size()>,
           ForwardTiles<head_size()>::geometry(shape_of(part, part.queries)), stream,
           Results<T>(out, false), at<float>(log_sum_exp), Operands<T>(q, k, v),
           AttentionCall(part, seen, dropout));
  });
}

}  // namespace lockstep::cuda
