// A part of a causal attention, and the merging of parts, without tensor cores, for all types and
// head sizes. As in attention_plain.cu, a block has 16 rows, four for each warp, and iterates over
// tiles of 32 others, one for each lane. It skips tiles that none of its rows see.
#include "collectives/base/cuda/launch.cuh"
#include "collectives/base/cuda/shared_memory.cuh"
#include "models/ops/cuda/attention_kernels.h"
#include "models/ops/cuda/attention_part.cuh"
#include "models/ops/cuda/geometry.h"
#include "models/ops/cuda/row_loops.cuh"

namespace lockstep::cuda {
namespace {

template <typename T>
__global__ void part_forward_kernel(Wide<T>* out, Wide<T>* log_sum_exp, Strided<const T> q,
                                    Strided<const T> k, Strided<const T> v,
                                    PartCall<Wide<T>> call) {
  using W = Wide<T>;
  const AttentionPart& s = call.part;
  const int head_size = static_cast<int>(s.head_size), pitch = head_size + 1;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const Place at(s.heads, call.queries, blockIdx.x);
  const FirstKeys first_keys = call.first_keys.of_sequence(at.sequence);
  W* const shared = dynamic_shared<W>();
  const PlainTile<W> queries{shared, pitch}, keys{queries.row(block_rows), pitch},
      values{keys.row(others), pitch};
  W* const probabilities = values.row(others) + warp * warp_rows * others;
  const T* const of_keys = k.row(at.sequence * call.keys) + call.kv_column(at.head);
  const T* const of_values = v.row(at.sequence * call.keys) + call.kv_column(at.head);
  queries.load(q.row(at.sequence * call.queries) + at.head * s.head_size, q.stride, at.first,
               block_rows, call.queries, head_size);
  W highest[warp_rows], sum[warp_rows] = {};
  Columns<W> results[warp_rows];
  for (W& h : highest) h = -INFINITY;
  const Count first = at.first + warp * warp_rows;
  const Count seen = call.seen_by(min(at.first + block_rows, call.queries) - 1);
  for (Count first_key = first_keys[at.first] / others * others; first_key < seen;
       first_key += others) {
    __syncthreads();
    keys.load(of_keys, k.stride, first_key, others, call.keys, head_size);
    values.load(of_values, v.stride, first_key, others, call.keys, head_size);
    __syncthreads();
    W scores[warp_rows];
    multiply(scores, queries, keys, head_size);
    const Count key = first_key + lane;
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) {
      const Count query = first + r;
      const bool sees = key < call.seen_by(query) && key >= first_keys[query];
      const W score = sees ? scores[r] * call.scale : static_cast<W>(-INFINITY);
      const W high = max(highest[r], warp_max(score));
      // For a row that has seen no key yet, `high` is -infinity and its exponentials are 0.
      const W base = high == static_cast<W>(-INFINITY) ? W{0} : high;
      const W shrink = exp(highest[r] - base), p = exp(score - base);
      sum[r] = sum[r] * shrink + warp_sum(p);
      highest[r] = high;
      for (W& x : results[r].x) x *= shrink;
      probabilities[r * others + lane] =
          sees ? call.dropped(p, at.sequence, at.head, s.queries[query], s.keys[key]) : W{0};
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
    if (row >= call.queries) continue;
    results[r].store(out + ((at.sequence * call.queries + row) * s.heads + at.head) * s.head_size,
                     sum[r] > 0 ? W{1} / sum[r] : W{0}, head_size);
    if (lane == 0)
      log_sum_exp[(at.sequence * s.heads + at.head) * call.queries + row] =
          highest[r] + log(sum[r]);
  }
}

// One warp per head of a row. See models/ops/attention_merge.cc.
template <typename W>
__global__ void merge_kernel(W* out, W* log_sum_exp, const W* part_out, const W* part_log_sum_exp,
                             Count rows, Count queries, Count heads, Count head_size) {
  for_rows(rows * heads, [&](Count i) {
    const Count row = i / heads, head = i % heads;
    const Count place = (row / queries * heads + head) * queries + row % queries;
    const W l = log_sum_exp[place], other_l = part_log_sum_exp[place];
    __syncwarp();  // all lanes have read it
    if (other_l == static_cast<W>(-INFINITY)) return;
    const bool is_first = l == static_cast<W>(-INFINITY);
    const W difference = is_first ? W{0} : other_l - l, weight = W{1} / (W{1} + exp(-difference));
    for (Count c = threadIdx.x % 32; c < head_size; c += 32) {
      W& x = out[i * head_size + c];
      const W other = part_out[i * head_size + c];
      x = is_first ? other : x + weight * (other - x);
    }
    if (threadIdx.x % 32 == 0)
      log_sum_exp[place] = is_first ? other_l : max(l, other_l) + log1p(exp(-abs(difference)));
  });
}

}  // namespace

void plain_attention_part(cudaStream_t stream, Slice out, Slice log_sum_exp, const Matrix& q,
                          const Matrix& k, const Matrix& v, const AttentionPart& part,
                          const std::int32_t* first_keys, const Dropout& dropout) {
  with_type(q.slice.dtype, [&]<typename T>(T*) {
    using W = Wide<T>;
    launch(part_forward_kernel<T>, PlainTiles::forward(shape_of(part, part.queries), sizeof(W)),
           stream, at<W>(out), at<W>(log_sum_exp), Strided<const T>(q), Strided<const T>(k),
           Strided<const T>(v), PartCall<W>(part, first_keys, dropout));
  });
}

void merge_attention(cudaStream_t stream, Slice out, Slice log_sum_exp, Slice part_out,
                     Slice part_log_sum_exp, const AttentionPart& part) {
  const Count rows = part.sequences * part.queries.count();
  const auto merge = [&]<typename W>(W*) {
    launch(merge_kernel<W>, warp_per_row(rows * part.heads), stream, at<W>(out), at<W>(log_sum_exp),
           at<const W>(part_out), at<const W>(part_log_sum_exp), rows, part.queries.count(),
           part.heads, part.head_size);
  };
  if (out.dtype == DType::f64) return merge(static_cast<double*>(nullptr));
  merge(static_cast<float*>(nullptr));
}

}  // namespace lockstep::cuda
