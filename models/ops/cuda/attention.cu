// Chooses the kernels for an attention: on tensor cores where such kernels exist.
#include <algorithm>
#include <string>

#include "models/ops/cuda/attention_geometry.h"
#include "models/ops/cuda/attention_kernels.h"
#include "models/ops/cuda/kernels.h"
#include "models/ops/cuda/numbers.cuh"

namespace lockstep::cuda {
namespace {

// Tensor-core kernels copy 16 bytes at a time, and store 8 bytes of f32.
bool in_packs(const Matrix& matrix) {
  return reinterpret_cast<std::uintptr_t>(matrix.slice.data) % pack_bytes == 0 &&
         matrix.stride * element_bytes(matrix.slice.dtype) % pack_bytes == 0;
}

bool fit_tensor_kernels(Count head_size, std::initializer_list<Matrix> matrices) {
  const Matrix& q = *matrices.begin();
  return has_tensor_attention(q.slice.dtype, head_size) && std::ranges::all_of(matrices, in_packs);
}

// The queries, keys and values of a whole attention.
struct Qkv {
  Matrix q, k, v;

  Qkv(Slice qkv, const AttentionShape& s)
      : q(columns(qkv, s, 0, s.width())),
        k(columns(qkv, s, s.width(), s.kv_width())),
        v(columns(qkv, s, s.width() + s.kv_width(), s.kv_width())) {}

  static Matrix columns(Slice qkv, const AttentionShape& s, Count first, Count count) {
    return Matrix(qkv, s.sequences * s.length, s.qkv_width()).columns_from(first, count);
  }
};

AttentionPart whole(const AttentionShape& s) {
  const Positions all = Positions::all(s.length);
  return {s.sequences, s.heads, s.head_size, s.kv_heads, all, all, s.length};
}

}  // namespace

void check_plain_head_size(DType dtype, Count head_size) {
  const Count most = PlainTiles::most_head_size_of(element_bytes(dtype));
  require(head_size <= most,
          "attention on a device: heads of " + std::to_string(head_size) + " elements of " +
              std::string(name_of(dtype)),
          "at most " + std::to_string(most));
}

void attention(cudaStream_t stream, Slice out, Slice log_sum_exp, Slice qkv,
               const AttentionShape& shape, const std::int32_t* first_keys,
               const Dropout& dropout) {
  const Qkv in(qkv, shape);
  const Matrix rows(out, shape.sequences * shape.length, shape.width());
  if (fit_tensor_kernels(shape.head_size, {in.q, in.k, in.v, rows}))
    return tensor_attention(stream, rows, log_sum_exp, in.q, in.k, in.v, whole(shape),
                            {.first = first_keys}, dropout);
  check_plain_head_size(qkv.dtype, shape.head_size);
  plain_attention(stream, out, log_sum_exp, qkv, shape, first_keys, dropout);
}

void attention_backward(cudaStream_t stream, Slice dqkv, Slice dout, Slice out, Slice log_sum_exp,
                        Slice qkv, const AttentionShape& shape, const std::int32_t* first_keys,
                        const Dropout& dropout, void* products) {
  attention_products(stream, products, dout, out, shape);
  const Qkv in(qkv, shape), gradients(dqkv, shape);
  const Matrix rows(dout, shape.sequences * shape.length, shape.width());
  if (fit_tensor_kernels(shape.head_size,
                         {in.q, in.k, in.v, gradients.q, gradients.k, gradients.v, rows}))
    return tensor_attention_backward(stream, gradients.q, gradients.k, gradients.v, dout,
                                     log_sum_exp, static_cast<const float*>(products), in.q, in.k,
                                     in.v, whole(shape), {.first = first_keys}, dropout);
  check_plain_head_size(qkv.dtype, shape.head_size);
  plain_attention_backward(stream, dqkv, dout, log_sum_exp, products, qkv, shape, first_keys,
                           dropout);
}

void attention_part(cudaStream_t stream, Slice out, Slice log_sum_exp, const Matrix& q,
                    const Matrix& k, const Matrix& v, const AttentionPart& part,
                    const SeenKeys& seen, const Dropout& dropout) {
  const Matrix rows(out, q.rows, part.heads * part.head_size);
  if (fit_tensor_kernels(part.head_size, {q, k, v, rows}))
    return tensor_attention(stream, rows, log_sum_exp, q, k, v, part, seen, dropout);
  check_plain_head_size(q.slice.dtype, part.head_size);
  plain_attention_part(stream, out, log_sum_exp, q, k, v, part, seen.first, dropout);
}

void attention_part_backward(cudaStream_t stream, const Matrix& dq, const Matrix& dk,
                             const Matrix& dv, Slice dout, Slice log_sum_exp, Slice products,
                             const Matrix& q, const Matrix& k, const Matrix& v,
                             const AttentionPart& part, const SeenKeys& seen,
                             const Dropout& dropout) {
  const Matrix rows(dout, q.rows, part.heads * part.head_size);
  if (fit_tensor_kernels(part.head_size, {q, k, v, dq, dk, dv, rows}))
    return tensor_attention_backward(stream, dq, dk, dv, dout, log_sum_exp,
                                     at<const float>(products), q, k, v, part, seen, dropout);
  check_plain_head_size(q.slice.dtype, part.head_size);
  plain_attention_part_backward(stream, dq, dk, dv, dout, log_sum_exp, products, q, k, v, part,
                                seen.first, dropout);
}

}  // namespace lockstep::cuda
