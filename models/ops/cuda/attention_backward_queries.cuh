// The gradient of the queries on tensor cores. A block has a tile of queries and iterates over the
// keys that they see. It recomputes what the kernel for keys and values computes: two more products
// than the five needed, but the sums need neither atomics nor extra memory.
#pragma once

#include "collectives/base/cuda/shared_memory.cuh"
#include "models/ops/cuda/attention_geometry.h"
#include "models/ops/cuda/attention_tiles.cuh"

namespace lockstep::cuda {

template <typename T, int head_size>
class QueryWarp {
 public:
  using Sizes = QueryTiles<head_size>;
  static constexpr int pieces_m = Sizes::warp_rows / 16, pieces_d = head_size / 8,
                       steps_d = head_size / 16;
  using OwnTile = Tile<T, Sizes::queries, head_size>;
  using KeyTile = Tile<T, Sizes::keys, head_size>;

  // log_sum_exp and products begin at this head's first query.
  __device__ QueryWarp(const AttentionCall& call, FirstKeys first_keys, int first_query,
                       const float* log_sum_exp, const float* products)
      : call_(call), first_keys_(first_keys), ends_(call.key_ends), first_(first_query) {
#pragma unroll
    for (int m = 0; m < pieces_m; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first_ + 16 * m + piece_row(2 * h);
        log_sum_exp_[m][h] = row < call.queries ? log_sum_exp[row] * log2_e : 0;
        product_[m][h] = row < call.queries ? products[row] : 0;
      }
#pragma unroll
      for (int n = 0; n < pieces_d; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) dq_[m][n][i] = 0;
    }
  }

  __device__ void load(OwnTile queries, OwnTile dout) {
    const int row = static_cast<int>(threadIdx.x / 32) * Sizes::warp_rows;
#pragma unroll
    for (int m = 0; m < pieces_m; ++m)
#pragma unroll
      for (int k = 0; k < steps_d; ++k) {
        queries.left(q_[m][k], row + 16 * m, k);
        dout.left(dout_[m][k], row + 16 * m, k);
      }
  }

  // Adds the contribution of the tile of keys from first_key on.
  __device__ void add(KeyTile keys, KeyTile values, int first_key, Count index) {
#pragma unroll 1
    for (int k = 0; k < Sizes::keys; k += 16)
      // No query of this warp sees keys after all of its queries, or before all of their documents.
      if (first_key + k < ends_[first_ + Sizes::warp_rows - 1] &&
          first_key + k + 15 >= first_keys_[first_])
        add_16(keys, values, k, first_key + k, index);
  }

  __device__ void finish(const Results<T>& dq) const {
#pragma unroll
    for (int m = 0; m < pieces_m; ++m)
      store_rows(dq, first_ + 16 * m, call_.queries, dq_[m], {call_.scale, call_.scale});
  }

 private:
  __device__ void add_16(KeyTile keys, KeyTile values, int k, int first_key, Count index) {
    Pair s[pieces_m] = {}, ds[pieces_m] = {};  // [queries, keys]
#pragma unroll
    for (int d = 0; d < steps_d; ++d) {
      unsigned of_keys[4], of_values[4];
      keys.right_transposed(of_keys, k, d);
      values.right_transposed(of_values, k, d);
#pragma unroll
      for (int m = 0; m < pieces_m; ++m) {
        multiply_add<T>(s[m][0], q_[m][d], of_keys[0], of_keys[1]);
        multiply_add<T>(s[m][1], q_[m][d], of_keys[2], of_keys[3]);
        multiply_add<T>(ds[m][0], dout_[m][d], of_values[0], of_values[1]);
        multiply_add<T>(ds[m][1], dout_[m][d], of_values[2], of_values[3]);
      }
    }
    if (first_key + 16 > ends_[first_]) hide_later_keys(s, first_key);
    if (first_key < first_keys_[first_ + Sizes::warp_rows - 1])
      hide_earlier_documents(s, first_key);
    if (call_.masks)
      Kept<pieces_m>(call_.mask, [&](int m, int n, int i) {
        return call_.index(index, first_ + 16 * m + piece_row(i),
                           first_key + 8 * n + piece_column(i));
      }).apply(ds);
    unsigned left[pieces_m][4];
#pragma unroll
    for (int m = 0; m < pieces_m; ++m) {
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float p = exp2_fast(s[m][n][i] * (call_.scale * log2_e) - log_sum_exp_[m][i / 2]);
          ds[m][n][i] = p * (ds[m][n][i] - product_[m][i / 2]);
        }
      as_left<T>(left[m], ds[m][0], ds[m][1]);
    }
#pragma unroll
    for (int n = 0; n < pieces_d; n += 2) {
      unsigned of_keys[4];
      keys.right(of_keys, k, n / 2);
#pragma unroll
      for (int m = 0; m < pieces_m; ++m) {
        multiply_add<T>(dq_[m][n], left[m], of_keys[0], of_keys[1]);
        multiply_add<T>(dq_[m][n + 1], left[m], of_keys[2], of_keys[3]);
      }
    }
  }

  __device__ void hide_later_keys(Pair (&scores)[pieces_m], int first_key) const {
#pragma unroll
    for (int m = 0; m < pieces_m; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int seen = ends_[first_ + 16 * m + piece_row(2 * h)] - first_key;
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int i = 2 * h; i < 2 * h + 2; ++i)
            if (8 * n + piece_column(i) >= seen) scores[m][n][i] = -INFINITY;
      }
  }

  __device__ void hide_earlier_documents(Pair (&scores)[pieces_m], int first_key) const {
#pragma unroll
    for (int m = 0; m < pieces_m; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int hidden = first_keys_[first_ + 16 * m + piece_row(2 * h)] - first_key;
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int i = 2 * h; i < 2 * h + 2; ++i)
            if (8 * n + piece_column(i) < hidden) scores[m][n][i] = -INFINITY;
      }
  }

  const AttentionCall& call_;
  FirstKeys first_keys_;
  KeyEnds ends_;
  int first_;  // query of this warp
  float log_sum_exp_[pieces_m][2], product_[pieces_m][2];
  unsigned q_[pieces_m][steps_d][4], dout_[pieces_m][steps_d][4];
  float dq_[pieces_m][pieces_d][4];
};

template <typename T, int head_size>
__global__ void __launch_bounds__(attention_threads)
    backward_queries_kernel(Results<T> dq, const T* dout, const float* log_sum_exp,
                            const float* products, Operands<T> in, const AttentionCall call) {
  using Warp = QueryWarp<T, head_size>;
  using Sizes = QueryTiles<head_size>;
  const int query_tiles = (call.queries + Sizes::queries - 1) / Sizes::queries;
  const int of_all = static_cast<int>(blockIdx.x / query_tiles);
  const int head = of_all % call.heads, sequence = of_all / call.heads;
  const int first_query =
      (query_tiles - 1 - static_cast<int>(blockIdx.x % query_tiles)) * Sizes::queries;

  T* const shared = dynamic_shared<T>();
  const typename Warp::OwnTile queries{shared}, own_dout{shared + Sizes::queries * head_size};
  const auto keys_at = [&](int i) {
    return typename Warp::KeyTile{shared + (2 * Sizes::queries + 2 * i * Sizes::keys) * head_size};
  };
  const auto values_at = [&](int i) {
    return typename Warp::KeyTile{shared +
                                  (2 * Sizes::queries + (2 * i + 1) * Sizes::keys) * head_size};
  };
  const Count first_row = static_cast<Count>(sequence) * call.queries,
              first_key_row = static_cast<Count>(sequence) * call.keys,
              width = static_cast<Count>(call.heads) * head_size;
  const T* const k = in.k.row(first_key_row) + call.kv_head(head) * head_size;
  const T* const v = in.v.row(first_key_row) + call.kv_head(head) * head_size;
  queries.begin_load(in.q.row(first_row) + head * head_size, in.q.stride, first_query,
                     call.queries);
  own_dout.begin_load(dout + first_row * width + head * head_size, width, first_query,
                      call.queries);
  const int seen = call.key_ends[min(first_query + Sizes::queries, call.queries) - 1];
  const FirstKeys first_keys = call.first_keys.of_sequence(sequence);
  const int first_tile = first_keys[first_query] / Sizes::keys,
            tiles = (seen + Sizes::keys - 1) / Sizes::keys;
  const auto begin_load = [&](int t) {
    if (t < tiles) {
      keys_at(t % 2).begin_load(k, in.k.stride, t * Sizes::keys, call.keys);
      values_at(t % 2).begin_load(v, in.v.stride, t * Sizes::keys, call.keys);
    }
    commit_copies();
  };
  begin_load(first_tile);
  const Count statistics = static_cast<Count>(of_all) * call.queries;
  Warp warp(call, first_keys, first_query + static_cast<int>(threadIdx.x / 32) * Sizes::warp_rows,
            log_sum_exp + statistics, products + statistics);
  const Count index = call.index_of(sequence, head);
  for (int t = first_tile; t < tiles; ++t) {
    wait_for_copies<0>();
    __syncthreads();  // tile t has arrived, and no thread uses the tile that the next one replaces
    begin_load(t + 1);
    if (t == first_tile) warp.load(queries, own_dout);
    warp.add(keys_at(t % 2), values_at(t % 2), t * Sizes::keys, index);
  }
  warp.finish(dq.from(first_row, head * head_size));
}

}  // namespace lockstep::cuda
