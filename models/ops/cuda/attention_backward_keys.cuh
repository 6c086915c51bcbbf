// The gradients of keys and values on tensor cores. A block has a tile of keys and iterates over the
// queries that see them, of all heads that share them, so only this block adds to their gradients.
// Everything is computed transposed, with keys as rows: the registers with the result of one product
// are then the left factor of the next.
#pragma once

#include "collectives/base/cuda/shared_memory.cuh"
#include "models/ops/cuda/attention_geometry.h"
#include "models/ops/cuda/attention_tiles.cuh"

namespace lockstep::cuda {

template <typename T, int head_size>
class KeyWarp {
 public:
  using Sizes = KeyTiles<head_size>;
  static constexpr int pieces_m = Sizes::warp_rows / 16, pieces_d = head_size / 8,
                       steps_d = head_size / 16;
  using OwnTile = Tile<T, Sizes::keys, head_size>;
  using QueryTile = Tile<T, Sizes::queries, head_size>;

  // Queries, the gradients of their results, and both statistics of each.
  struct Stage {
    QueryTile queries, dout;
    float *log_sum_exp, *products;
  };

  __device__ KeyWarp(const AttentionCall& call, FirstKeys first_keys, int first_key)
      : call_(call), first_keys_(first_keys), ends_(call.key_ends), first_(first_key) {
#pragma unroll
    for (int m = 0; m < pieces_m; ++m)
#pragma unroll
      for (int n = 0; n < pieces_d; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) dk_[m][n][i] = dv_[m][n][i] = 0;
  }

  __device__ void load(OwnTile keys, OwnTile values) {
    const int row = static_cast<int>(threadIdx.x / 32) * Sizes::warp_rows;
#pragma unroll
    for (int m = 0; m < pieces_m; ++m)
#pragma unroll
      for (int k = 0; k < steps_d; ++k) {
        keys.left(k_[m][k], row + 16 * m, k);
        values.left(v_[m][k], row + 16 * m, k);
      }
  }

  // Adds the contribution of the tile of queries from first_query on.
  __device__ void add(const Stage& stage, int first_query, Count index) {
#pragma unroll 1
    for (int q = 0; q < Sizes::queries; q += 16)
      // Queries before all of this warp's keys see none of them, nor do those of later documents.
      if (ends_[first_query + q + 15] > first_ &&
          first_keys_[first_query + q] < first_ + Sizes::warp_rows)
        add_16(stage, q, first_query + q, index);
  }

  __device__ void finish(const Results<T>& dk, const Results<T>& dv) const {
#pragma unroll
    for (int m = 0; m < pieces_m; ++m) {
      store_rows(dk, first_ + 16 * m, call_.keys, dk_[m], {call_.scale, call_.scale});
      store_rows(dv, first_ + 16 * m, call_.keys, dv_[m], {1, 1});
    }
  }

 private:
  __device__ void add_16(const Stage& stage, int q, int query, Count index) {
    Pair p[pieces_m] = {}, ds[pieces_m] = {};  // [keys, queries]
#pragma unroll
    for (int k = 0; k < steps_d; ++k) {
      unsigned of_queries[4], of_dout[4];
      stage.queries.right_transposed(of_queries, q, k);
      stage.dout.right_transposed(of_dout, q, k);
#pragma unroll
      for (int m = 0; m < pieces_m; ++m) {
        multiply_add<T>(p[m][0], k_[m][k], of_queries[0], of_queries[1]);
        multiply_add<T>(p[m][1], k_[m][k], of_queries[2], of_queries[3]);
        multiply_add<T>(ds[m][0], v_[m][k], of_dout[0], of_dout[1]);
        multiply_add<T>(ds[m][1], v_[m][k], of_dout[2], of_dout[3]);
      }
    }
    if (first_ + Sizes::warp_rows > ends_[query]) hide_earlier_queries(p, query);
    if (first_ < first_keys_[query + 15]) hide_later_documents(p, query);
    if (call_.masks) {
      const Kept<pieces_m> kept(call_.mask, [&](int m, int n, int i) {
        return call_.index(index, query + 8 * n + piece_column(i), first_ + 16 * m + piece_row(i));
      });
      kept.apply(ds);
      differentiate(p, ds, stage, q);
      kept.apply(p);
    } else {
      differentiate(p, ds, stage, q);
    }
    unsigned left_p[pieces_m][4], left_ds[pieces_m][4];
#pragma unroll
    for (int m = 0; m < pieces_m; ++m) {
      as_left<T>(left_p[m], p[m][0], p[m][1]);
      as_left<T>(left_ds[m], ds[m][0], ds[m][1]);
    }
#pragma unroll
    for (int n = 0; n < pieces_d; n += 2) {
      unsigned of_queries[4], of_dout[4];
      stage.queries.right(of_queries, q, n / 2);
      stage.dout.right(of_dout, q, n / 2);
#pragma unroll
      for (int m = 0; m < pieces_m; ++m) {
        multiply_add<T>(dk_[m][n], left_ds[m], of_queries[0], of_queries[1]);
        multiply_add<T>(dk_[m][n + 1], left_ds[m], of_queries[2], of_queries[3]);
        multiply_add<T>(dv_[m][n], left_p[m], of_dout[0], of_dout[1]);
        multiply_add<T>(dv_[m][n + 1], left_p[m], of_dout[2], of_dout[3]);
      }
    }
  }

  __device__ void hide_earlier_queries(Pair (&scores)[pieces_m], int query) const {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int seen = ends_[query + 8 * n + piece_column(odd)] - first_;
#pragma unroll
        for (int m = 0; m < pieces_m; ++m)
#pragma unroll
          for (int i = odd; i < 4; i += 2)
            if (16 * m + piece_row(i) >= seen) scores[m][n][i] = -INFINITY;
      }
  }

  __device__ void hide_later_documents(Pair (&scores)[pieces_m], int query) const {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int hidden = first_keys_[query + 8 * n + piece_column(odd)] - first_;
#pragma unroll
        for (int m = 0; m < pieces_m; ++m)
#pragma unroll
          for (int i = odd; i < 4; i += 2)
            if (16 * m + piece_row(i) < hidden) scores[m][n][i] = -INFINITY;
      }
  }

  // Scores and the gradients of their probabilities become the probabilities and the gradients of
  // the scores.
  __device__ void differentiate(Pair (&p)[pieces_m], Pair (&ds)[pieces_m], const Stage& stage,
                                int q) const {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int column = q + 8 * n + piece_column(odd);
        const float offset = stage.log_sum_exp[column] * log2_e, product = stage.products[column];
#pragma unroll
        for (int m = 0; m < pieces_m; ++m)
#pragma unroll
          for (int i = odd; i < 4; i += 2) {
            p[m][n][i] = exp2_fast(p[m][n][i] * (call_.scale * log2_e) - offset);
            ds[m][n][i] = p[m][n][i] * (ds[m][n][i] - product);
          }
      }
  }

  const AttentionCall& call_;
  FirstKeys first_keys_;
  KeyEnds ends_;
  int first_;  // key of this warp
  unsigned k_[pieces_m][steps_d][4], v_[pieces_m][steps_d][4];
  float dk_[pieces_m][pieces_d][4], dv_[pieces_m][pieces_d][4];
};

template <typename T, int head_size>
__global__ void __launch_bounds__(attention_threads)
    backward_keys_kernel(Results<T> dk, Results<T> dv, const T* dout, const float* log_sum_exp,
                         const float* products, Operands<T> in, const AttentionCall call) {
  using Warp = KeyWarp<T, head_size>;
  using Sizes = KeyTiles<head_size>;
  // The first keys are seen by the most queries, so they begin first.
  const int key_tiles = (call.keys + Sizes::keys - 1) / Sizes::keys;
  const int of_all = static_cast<int>(blockIdx.x / key_tiles);
  const int kv_head = of_all % call.kv_heads, sequence = of_all / call.kv_heads;
  const int first_key = static_cast<int>(blockIdx.x % key_tiles) * Sizes::keys;
  const int sharers = call.heads / call.kv_heads, first_head = kv_head * sharers;

  T* const shared = dynamic_shared<T>();
  const typename Warp::OwnTile keys{shared}, values{shared + Sizes::keys * head_size};
  const auto stage_at = [&](int i) {
    T* const tiles = shared + (2 * Sizes::keys + 2 * i * Sizes::queries) * head_size;
    float* const statistics =
        reinterpret_cast<float*>(shared + (2 * Sizes::keys + 4 * Sizes::queries) * head_size) +
        2 * i * Sizes::queries;
    return typename Warp::Stage{
        {tiles}, {tiles + Sizes::queries * head_size}, statistics, statistics + Sizes::queries};
  };
  const Count first_row = static_cast<Count>(sequence) * call.queries,
              first_key_row = static_cast<Count>(sequence) * call.keys, own = kv_head * head_size,
              width = static_cast<Count>(call.heads) * head_size;
  keys.begin_load(in.k.row(first_key_row) + own, in.k.stride, first_key, call.keys);
  values.begin_load(in.v.row(first_key_row) + own, in.v.stride, first_key, call.keys);

  // Tiles of queries from the first that sees the first key to the end of the last key's document, one
  // head after another.
  const FirstKeys first_keys = call.first_keys.of_sequence(sequence);
  const int first_tile = call.key_ends.begin_of_seeing(first_key) / Sizes::queries;
  const int seeing = first_keys.end_of_seeing(first_key + Sizes::keys - 1);
  const int tiles = (seeing + Sizes::queries - 1) / Sizes::queries - first_tile;
  const auto head_of = [&](int step) { return first_head + step / tiles; };
  const auto query_of = [&](int step) { return (first_tile + step % tiles) * Sizes::queries; };
  const auto begin_load = [&](int step) {
    if (step < sharers * tiles) {
      const typename Warp::Stage stage = stage_at(step % 2);
      const int head = head_of(step), query = query_of(step);
      stage.queries.begin_load(in.q.row(first_row) + head * head_size, in.q.stride, query,
                               call.queries);
      stage.dout.begin_load(dout + first_row * width + head * head_size, width, query,
                            call.queries);
      const Count statistics = (static_cast<Count>(sequence) * call.heads + head) * call.queries;
      if (threadIdx.x < Sizes::queries) {
        const int row = query + static_cast<int>(threadIdx.x);
        const bool there = row < call.queries;
        const Count at = statistics + (there ? row : 0);
        begin_small_copy(stage.log_sum_exp + threadIdx.x, log_sum_exp + at, there);
        begin_small_copy(stage.products + threadIdx.x, products + at, there);
      }
    }
    commit_copies();
  };
  begin_load(0);
  Warp warp(call, first_keys, first_key + static_cast<int>(threadIdx.x / 32) * Sizes::warp_rows);
  for (int step = 0; step < sharers * tiles; ++step) {
    wait_for_copies<0>();
    __syncthreads();  // this step's tile has arrived, and no thread uses the previous one
    begin_load(step + 1);
    if (step == 0) warp.load(keys, values);
    warp.add(stage_at(step % 2), query_of(step), call.index_of(sequence, head_of(step)));
  }
  warp.finish(dk.from(first_key_row, own), dv.from(first_key_row, own));
}

}  // namespace lockstep::cuda
