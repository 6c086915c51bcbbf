// Backward of a part of a causal attention. See attention_part.cu.
#include "collectives/base/cuda/launch.cuh"
#include "collectives/base/cuda/shared_memory.cuh"
#include "models/ops/cuda/attention_kernels.h"
#include "models/ops/cuda/attention_part.cuh"

namespace lockstep::cuda {
namespace {

// Adds the gradient of the queries.
template <typename T>
__global__ void part_queries_kernel(Strided<Wide<T>> dq, const T* dout, const Wide<T>* log_sum_exp,
                                    const Wide<T>* products, Strided<const T> q, Strided<const T> k,
                                    Strided<const T> v, PartCall<Wide<T>> call) {
  using W = Wide<T>;
  const AttentionPart& s = call.part;
  const int head_size = static_cast<int>(s.head_size), pitch = head_size + 1;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const Place at(s.heads, call.queries, blockIdx.x);
  const FirstKeys first_keys = call.first_keys.of_sequence(at.sequence);
  W* const shared = dynamic_shared<W>();
  const PlainTile<W> queries{shared, pitch}, own_dout{queries.row(block_rows), pitch},
      keys{own_dout.row(block_rows), pitch}, values{keys.row(others), pitch};
  W* const gradients = values.row(others) + warp * warp_rows * others;
  const Count first_row = at.sequence * call.queries, width = s.heads * s.head_size;
  const T* const of_keys = k.row(at.sequence * call.keys) + call.kv_column(at.head);
  const T* const of_values = v.row(at.sequence * call.keys) + call.kv_column(at.head);
  const Count statistics = (at.sequence * s.heads + at.head) * call.queries;
  const Count seen = call.seen_by(min(at.first + block_rows, call.queries) - 1);
  if (seen == 0) return;
  queries.load(q.row(first_row) + at.head * s.head_size, q.stride, at.first, block_rows,
               call.queries, head_size);
  own_dout.load(dout + first_row * width + at.head * s.head_size, width, at.first, block_rows,
                call.queries, head_size);
  Columns<W> results[warp_rows];
  const Count first = at.first + warp * warp_rows;
  for (Count first_key = first_keys[at.first] / others * others; first_key < seen;
       first_key += others) {
    __syncthreads();
    keys.load(of_keys, k.stride, first_key, others, call.keys, head_size);
    values.load(of_values, v.stride, first_key, others, call.keys, head_size);
    __syncthreads();
    W scores[warp_rows], dp[warp_rows];
    multiply(scores, queries, keys, head_size);
    multiply(dp, own_dout, values, head_size);
    const Count key = first_key + lane;
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) {
      const Count query = first + r;
      W ds = 0;
      if (key < call.seen_by(query) && key >= first_keys[query])
        ds = exp(scores[r] * call.scale - log_sum_exp[statistics + query]) *
             (call.dropped(dp[r], at.sequence, at.head, s.queries[query], s.keys[key]) -
              products[statistics + query]);
      gradients[r * others + lane] = ds;
    }
    __syncwarp();
    for (int j = 0; j < others; ++j)
#pragma unroll
      for (int r = 0; r < warp_rows; ++r)
        results[r].add(gradients[r * others + j], keys.row(j), head_size);
  }
#pragma unroll
  for (int r = 0; r < warp_rows; ++r)
    if (first + r < call.queries)
      results[r].add_to(dq.row(first_row + first + r) + at.head * s.head_size, call.scale,
                        head_size);
}

// Adds the gradients of keys and values, from all heads that share them.
template <typename T>
__global__ void part_keys_kernel(Strided<Wide<T>> dk_all, Strided<Wide<T>> dv_all, const T* dout,
                                 const Wide<T>* log_sum_exp, const Wide<T>* products,
                                 Strided<const T> q, Strided<const T> k, Strided<const T> v,
                                 PartCall<Wide<T>> call) {
  using W = Wide<T>;
  const AttentionPart& s = call.part;
  const int head_size = static_cast<int>(s.head_size), pitch = head_size + 1;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const Place at(s.kv_heads, call.keys, blockIdx.x);
  const FirstKeys first_keys = call.first_keys.of_sequence(at.sequence);
  W* const shared = dynamic_shared<W>();
  const PlainTile<W> keys{shared, pitch}, values{keys.row(block_rows), pitch},
      queries{values.row(block_rows), pitch}, other_dout{queries.row(others), pitch};
  W* const probabilities = other_dout.row(others) + 2 * warp * warp_rows * others;
  W* const gradients = probabilities + warp_rows * others;
  const Count first_row = at.sequence * call.queries, width = s.heads * s.head_size,
              first_key_row = at.sequence * call.keys, own = at.head * s.head_size,
              sharers = s.heads / s.kv_heads;
  // Queries before the block's first key see none of its keys, nor do those of later documents.
  const Count unseeing = s.queries.up_to(s.keys[at.first] - 1),
              seeing = first_keys.end_of_seeing(at.first + block_rows - 1);
  if (unseeing >= seeing) return;
  keys.load(k.row(first_key_row) + own, k.stride, at.first, block_rows, call.keys, head_size);
  values.load(v.row(first_key_row) + own, v.stride, at.first, block_rows, call.keys, head_size);
  Columns<W> dk[warp_rows], dv[warp_rows];
  const Count first = at.first + warp * warp_rows;
  for (Count head = at.head * sharers; head < (at.head + 1) * sharers; ++head) {
    const Count statistics = (at.sequence * s.heads + head) * call.queries;
    for (Count first_query = unseeing; first_query < seeing; first_query += others) {
      __syncthreads();
      queries.load(q.row(first_row) + head * s.head_size, q.stride, first_query, others,
                   call.queries, head_size);
      other_dout.load(dout + first_row * width + head * s.head_size, width, first_query, others,
                      call.queries, head_size);
      __syncthreads();
      W scores[warp_rows], dp[warp_rows];
      multiply(scores, keys, queries, head_size);
      multiply(dp, values, other_dout, head_size);
      const Count query = first_query + lane, seen = call.seen_by(query);
#pragma unroll
      for (int r = 0; r < warp_rows; ++r) {
        const Count key = first + r;
        W p = 0, ds = 0;
        if (key < seen && key >= first_keys[query]) {
          const Count position = s.queries[query], key_position = s.keys[key];
          p = exp(scores[r] * call.scale - log_sum_exp[statistics + query]);
          ds = p * (call.dropped(dp[r], at.sequence, head, position, key_position) -
                    products[statistics + query]);
          p = call.dropped(p, at.sequence, head, position, key_position);
        }
        probabilities[r * others + lane] = p;
        gradients[r * others + lane] = ds;
      }
      __syncwarp();
      for (int j = 0; j < others; ++j)
#pragma unroll
        for (int r = 0; r < warp_rows; ++r) {
          dk[r].add(gradients[r * others + j], queries.row(j), head_size);
          dv[r].add(probabilities[r * others + j], other_dout.row(j), head_size);
        }
    }
  }
#pragma unroll
  for (int r = 0; r < warp_rows; ++r)
    if (first + r < call.keys) {
      dk[r].add_to(dk_all.row(first_key_row + first + r) + own, call.scale, head_size);
      dv[r].add_to(dv_all.row(first_key_row + first + r) + own, W{1}, head_size);
    }
}

}  // namespace

void plain_attention_part_backward(cudaStream_t stream, const Matrix& dq, const Matrix& dk,
                                   const Matrix& dv, Slice dout, Slice log_sum_exp, Slice products,
                                   const Matrix& q, const Matrix& k, const Matrix& v,
                                   const AttentionPart& part, const std::int32_t* first_keys,
                                   const Dropout& dropout) {
  with_type(q.slice.dtype, [&]<typename T>(T*) {
    using W = Wide<T>;
    const PartCall<W> call(part, first_keys, dropout);
    launch(part_keys_kernel<T>,
           PlainTiles::backward(shape_of(part, part.keys), part.kv_heads, sizeof(W)), stream,
           Strided<W>(dk), Strided<W>(dv), at<const T>(dout), at<const W>(log_sum_exp),
           at<const W>(products), Strided<const T>(q), Strided<const T>(k), Strided<const T>(v),
           call);
    launch(part_queries_kernel<T>,
           PlainTiles::backward(shape_of(part, part.queries), part.heads, sizeof(W)), stream,
           Strided<W>(dq), at<const T>(dout), at<const W>(log_sum_exp), at<const W>(products),
           Strided<const T>(q), Strided<const T>(k), Strided<const T>(v), call);
  });
}

}  // namespace lockstep::cuda
