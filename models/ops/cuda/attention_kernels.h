// The attention kernels, among which attention.cu chooses.
#pragma once

#include <cuda_runtime.h>

#include "models/ops/cuda/kernels.h"

namespace lockstep::cuda {

// Whether there are tensor-core kernels for this type and head size.
constexpr bool has_tensor_attention(DType dtype, Count head_size) {
  return (dtype == DType::bf16 || dtype == DType::f16) &&
         (head_size == 32 || head_size == 64 || head_size == 128);
}

// attention_forward.cu and attention_backward.cu: for these. A whole attention or a part: `out` has
// q's type or f32; gradients have q's type, or f32 and are added.
void tensor_attention(cudaStream_t stream, const Matrix& out, Slice log_sum_exp, const Matrix& q,
                      const Matrix& k, const Matrix& v, const AttentionPart& part,
                      const SeenKeys& seen, const Dropout& dropout);
void tensor_attention_backward(cudaStream_t stream, const Matrix& dq, const Matrix& dk,
                               const Matrix& dv, Slice dout, Slice log_sum_exp,
                               const float* products, const Matrix& q, const Matrix& k,
                               const Matrix& v, const AttentionPart& part, const SeenKeys& seen,
                               const Dropout& dropout);

// attention_plain.cu: for any of the four types and head sizes up to most_plain_head_size().
void plain_attention(cudaStream_t stream, Slice out, Slice log_sum_exp, Slice qkv,
                     const AttentionShape& shape, const std::int32_t* first_keys,
                     const Dropout& dropout);
void plain_attention_backward(cudaStream_t stream, Slice dqkv, Slice dout, Slice log_sum_exp,
                              const void* products, Slice qkv, const AttentionShape& shape,
                              const std::int32_t* first_keys, const Dropout& dropout);
// attention_part.cu and attention_part_backward.cu: the same for parts.
void plain_attention_part(cudaStream_t stream, Slice out, Slice log_sum_exp, const Matrix& q,
                          const Matrix& k, const Matrix& v, const AttentionPart& part,
                          const std::int32_t* first_keys, const Dropout& dropout);
void plain_attention_part_backward(cudaStream_t stream, const Matrix& dq, const Matrix& dk,
                                   const Matrix& dv, Slice dout, Slice log_sum_exp, Slice products,
                                   const Matrix& q, const Matrix& k, const Matrix& v,
                                   const AttentionPart& part, const std::int32_t* first_keys,
                                   const Dropout& dropout);
// Throws Error (bad_input) if heads of that size do not fit these kernels.
void check_plain_head_size(DType dtype, Count head_size);
// products = the products of out and dout, which both backward kernels need.
void attention_products(cudaStream_t stream, void* products, Slice dout, Slice out,
                        const AttentionShape& shape);

}  // namespace lockstep::cuda
