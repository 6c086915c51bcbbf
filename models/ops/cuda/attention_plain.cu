// Causal attention without tensor cores, for f64 and f32, and for head sizes without tensor-core
// kernels. A block has 16 rows, four for each warp, and iterates over tiles of 32 others, one for
// each lane. Rows are queries in forward and for the gradient of queries, and keys for that of keys
// and values.
#include "collectives/base/cuda/launch.cuh"
#include "collectives/base/cuda/shared_memory.cuh"
#include "models/ops/cuda/attention_kernels.h"
#include "models/ops/cuda/attention_plain.cuh"

namespace lockstep::cuda {
namespace {

template <typename T>
__global__ void plain_forward_kernel(T* out, Wide<T>* log_sum_exp, const T* qkv,
                                     PlainCall<Wide<T>> call) {
  using W = Wide<T>;
  const AttentionShape& s = call.shape;
  const int head_size = static_cast<int>(s.head_size), pitch = head_size + 1;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const Place at(s.heads, s.length, blockIdx.x);
  const FirstKeys first_keys = call.first_keys.of_sequence(at.sequence);
  W* const shared = dynamic_shared<W>();
  const PlainTile<W> queries{shared, pitch}, keys{queries.row(block_rows), pitch},
      values{keys.row(others), pitch};
  W* const probabilities = values.row(others) + warp * warp_rows * others;
  const T* const of_sequence = qkv + at.sequence * s.length * s.qkv_width();
  const T* const k = of_sequence + s.width() + at.head / (s.heads / s.kv_heads) * s.head_size;
  queries.load(of_sequence + at.head * s.head_size, s.qkv_width(), at.first, block_rows, s.length,
               head_size);
  W highest[warp_rows], sum[warp_rows] = {};
  Columns<W> results[warp_rows];
  for (W& h : highest) h = -INFINITY;
  const Count first = at.first + warp * warp_rows, seen = min(at.first + block_rows, s.length);
  for (Count first_key = first_keys[at.first] / others * others; first_key < seen;
       first_key += others) {
    __syncthreads();
    keys.load(k, s.qkv_width(), first_key, others, s.length, head_size);
    values.load(k + s.kv_width(), s.qkv_width(), first_key, others, s.length, head_size);
    __syncthreads();
    W scores[warp_rows];
    multiply(scores, queries, keys, head_size);
    const Count key = first_key + lane;
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) {
      const bool sees = key <= first + r && key >= first_keys[first + r];
      const W score = sees ? scores[r] * call.scale : static_cast<W>(-INFINITY);
      const W high = max(highest[r], warp_max(score));
      // For a row that has seen no key yet, `high` is -infinity and its exponentials are 0.
      const W base = high == static_cast<W>(-INFINITY) ? W{0} : high;
      const W shrink = exp(highest[r] - base), p = exp(score - base);
      sum[r] = sum[r] * shrink + warp_sum(p);
      highest[r] = high;
      for (W& x : results[r].x) x *= shrink;
      probabilities[r * others + lane] = call.dropped(p, at.sequence, at.head, first + r, key);
    }
    __syncwarp();
    for (int j = 0; j < others; ++j)
#pragma unroll
      for (int r = 0; r < warp_rows; ++r)
        results[r].add(probabilities[r * others + j], values.row(j), head_size);
  }
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) {
    const Count row = first + r;
    if (row >= s.length) continue;
    results[r].store(out + (at.sequence * s.length + row) * s.width() + at.head * s.head_size,
                     W{1} / sum[r], head_size);
    if (lane == 0)
      log_sum_exp[(at.sequence * s.heads + at.head) * s.length + row] = highest[r] + log(sum[r]);
  }
}

// The gradient of the queries.
template <typename T>
__global__ void plain_queries_kernel(T* dqkv, const T* dout, const Wide<T>* log_sum_exp,
                                     const Wide<T>* products, const T* qkv,
                                     PlainCall<Wide<T>> call) {
  using W = Wide<T>;
  const AttentionShape& s = call.shape;
  const int head_size = static_cast<int>(s.head_size), pitch = head_size + 1;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const Place at(s.heads, s.length, blockIdx.x);
  const FirstKeys first_keys = call.first_keys.of_sequence(at.sequence);
  W* const shared = dynamic_shared<W>();
  const PlainTile<W> queries{shared, pitch}, own_dout{queries.row(block_rows), pitch},
      keys{own_dout.row(block_rows), pitch}, values{keys.row(others), pitch};
  W* const gradients = values.row(others) + warp * warp_rows * others;
  const Count first_row = at.sequence * s.length, stride = s.qkv_width();
  const T* const of_sequence = qkv + first_row * stride;
  const T* const k = of_sequence + s.width() + at.head / (s.heads / s.kv_heads) * s.head_size;
  const Count statistics = (at.sequence * s.heads + at.head) * s.length;
  queries.load(of_sequence + at.head * s.head_size, stride, at.first, block_rows, s.length,
               head_size);
  own_dout.load(dout + first_row * s.width() + at.head * s.head_size, s.width(), at.first,
                block_rows, s.length, head_size);
  Columns<W> results[warp_rows];
  const Count first = at.first + warp * warp_rows, seen = min(at.first + block_rows, s.length);
  for (Count first_key = first_keys[at.first] / others * others; first_key < seen;
       first_key += others) {
    __syncthreads();
    keys.load(k, stride, first_key, others, s.length, head_size);
    values.load(k + s.kv_width(), stride, first_key, others, s.length, head_size);
    __syncthreads();
    W scores[warp_rows], dp[warp_rows];
    multiply(scores, queries, keys, head_size);
    multiply(dp, own_dout, values, head_size);
    const Count key = first_key + lane;
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) {
      const Count query = first + r;
      W ds = 0;
      if (key <= query && query < s.length && key >= first_keys[query])
        ds = exp(scores[r] * call.scale - log_sum_exp[statistics + query]) *
             (call.dropped(dp[r], at.sequence, at.head, query, key) - products[statistics + query]);
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
    if (first + r < s.length)
      results[r].store(dqkv + (first_row + first + r) * stride + at.head * s.head_size, call.scale,
                       head_size);
}

// The gradients of keys and values, from all heads that share them.
template <typename T>
__global__ void plain_keys_kernel(T* dqkv, const T* dout, const Wide<T>* log_sum_exp,
                                  const Wide<T>* products, const T* qkv, PlainCall<Wide<T>> call) {
  using W = Wide<T>;
  const AttentionShape& s = call.shape;
  const int head_size = static_cast<int>(s.head_size), pitch = head_size + 1;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const Place at(s.kv_heads, s.length, blockIdx.x);
  const FirstKeys first_keys = call.first_keys.of_sequence(at.sequence);
  W* const shared = dynamic_shared<W>();
  const PlainTile<W> keys{shared, pitch}, values{keys.row(block_rows), pitch},
      queries{values.row(block_rows), pitch}, other_dout{queries.row(others), pitch};
  W* const probabilities = other_dout.row(others) + 2 * warp * warp_rows * others;
  W* const gradients = probabilities + warp_rows * others;
  const Count first_row = at.sequence * s.length, stride = s.qkv_width(),
              own = s.width() + at.head * s.head_size, sharers = s.heads / s.kv_heads;
  const T* const of_sequence = qkv + first_row * stride;
  keys.load(of_sequence + own, stride, at.first, block_rows, s.length, head_size);
  values.load(of_sequence + own + s.kv_width(), stride, at.first, block_rows, s.length, head_size);
  Columns<W> dk[warp_rows], dv[warp_rows];
  const Count first = at.first + warp * warp_rows,
              seeing = first_keys.end_of_seeing(at.first + block_rows - 1);
  for (Count head = at.head * sharers; head < (at.head + 1) * sharers; ++head) {
    const Count statistics = (at.sequence * s.heads + head) * s.length;
    for (Count first_query = at.first; first_query < seeing; first_query += others) {
      __syncthreads();
      queries.load(of_sequence + head * s.head_size, stride, first_query, others, s.length,
                   head_size);
      other_dout.load(dout + first_row * s.width() + head * s.head_size, s.width(), first_query,
                      others, s.length, head_size);
      __syncthreads();
      W scores[warp_rows], dp[warp_rows];
      multiply(scores, keys, queries, head_size);
      multiply(dp, values, other_dout, head_size);
      const Count query = first_query + lane;
#pragma unroll
      for (int r = 0; r < warp_rows; ++r) {
        const Count key = first + r;
        W p = 0, ds = 0;
        if (key <= query && query < s.length && key >= first_keys[query]) {
          p = exp(scores[r] * call.scale - log_sum_exp[statistics + query]);
          ds = p *
               (call.dropped(dp[r], at.sequence, head, query, key) - products[statistics + query]);
          p = call.dropped(p, at.sequence, head, query, key);
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
    if (first + r < s.length) {
      T* const into = dqkv + (first_row + first + r) * stride + own;
      dk[r].store(into, call.scale, head_size);
      dv[r].store(into + s.kv_width(), W{1}, head_size);
    }
}

// Eight lanes per row of a head.
template <typename T>
__global__ void products_kernel(Wide<T>* products, const T* dout, const T* out, AttentionShape s,
                                bool whole) {
  using W = Wide<T>;
  constexpr int lanes = 8, size = Pack<T>::size;
  const Count groups = static_cast<Count>(gridDim.x) * blockDim.x / lanes,
              count = s.sequences * s.length * s.heads;
  // All lanes of a warp must execute the loop together.
  const Count mine = (static_cast<Count>(blockIdx.x) * blockDim.x + threadIdx.x) / lanes;
  for (Count first = mine - mine % 4; first < count; first += groups) {
    const Count i = first + mine % 4, row = i / s.heads, head = i % s.heads;
    W sum = 0;
    if (i < count)
      for (Count c = threadIdx.x % lanes * size; c < s.head_size; c += lanes * size) {
        const Count place = row * s.width() + head * s.head_size + c;
        const Pack<T> d = load(dout + place, s.head_size - c, whole),
                      o = load(out + place, s.head_size - c, whole);
        for (int k = 0; k < size; ++k) sum += d.x[k] * o.x[k];
      }
    for (int bits = lanes / 2; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
    if (i < count && threadIdx.x % lanes == 0)
      products[(row / s.length * s.heads + head) * s.length + row % s.length] = sum;
  }
}

}  // namespace

void plain_attention(cudaStream_t stream, Slice out, Slice log_sum_exp, Slice qkv,
                     const AttentionShape& shape, const std::int32_t* first_keys,
                     const Dropout& dropout) {
  with_type(qkv.dtype, [&]<typename T>(T*) {
    using W = Wide<T>;
    launch(plain_forward_kernel<T>, PlainTiles::forward(shape, sizeof(W)), stream, at<T>(out),
           at<W>(log_sum_exp), at<T>(qkv), PlainCall<W>(shape, first_keys, dropout));
  });
}

void plain_attention_backward(cudaStream_t stream, Slice dqkv, Slice dout, Slice log_sum_exp,
                              const void* products, Slice qkv, const AttentionShape& shape,
                              const std::int32_t* first_keys, const Dropout& dropout) {
  with_type(qkv.dtype, [&]<typename T>(T*) {
    using W = Wide<T>;
    const PlainCall<W> call(shape, first_keys, dropout);
    const auto* const of_rows = static_cast<const W*>(products);
    launch(plain_keys_kernel<T>, PlainTiles::backward(shape, shape.kv_heads, sizeof(W)), stream,
           at<T>(dqkv), at<T>(dout), at<W>(log_sum_exp), of_rows, at<T>(qkv), call);
    launch(plain_queries_kernel<T>, PlainTiles::backward(shape, shape.heads, sizeof(W)), stream,
           at<T>(dqkv), at<T>(dout), at<W>(log_sum_exp), of_rows, at<T>(qkv), call);
  });
}

void attention_products(cudaStream_t stream, void* products, Slice dout, Slice out,
                        const AttentionShape& shape) {
  with_type(out.dtype, [&]<typename T>(T*) {
    const bool whole = in_packs<T>(shape.head_size, {at<T>(dout), at<T>(out)});
    launch(products_kernel<T>, over_elements(shape.sequences * shape.length * shape.heads * 8),
           stream, static_cast<Wide<T>*>(products), at<T>(dout), at<T>(out), shape, whole);
  });
}

}  // namespace lockstep::cuda
