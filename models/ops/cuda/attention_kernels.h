// The attention kernels, among which attention.cu chooses.
#pragma once

#include <cuda_runtime.h>

#include "models/backend.h"

namespace lockstep::cuda {

// Whether there are tensor-core kernels for this type and head size.
constexpr bool has_tensor_attention(DType dtype, Count head_size) {
  return (dtype == DType::bf16 || dtype == DType::f16) &&
         (head_size == 32 || head_size == 64 || head_size == 128);
}

// attention_forward.cu and attention_backward.cu: for __nv_bfloat16 and __half and the head sizes
// above.
template <typename T, int head_size>
void tensor_attention(cudaStream_t stream, T* out, float* log_sum_exp, const T* qkv,
                      const AttentionShape& shape, const std::int32_t* first_keys,
                      const Dropout& dropout);
// products[sequences, heads, length] are those of out and dout, row by row and head by head.
template <typename T, int head_size>
void tensor_attention_backward(cudaStream_t stream, T* dqkv, const T* dout,
                               const float* log_sum_exp, const float* products, const T* qkv,
                               const AttentionShape& shape, const std::int32_t* first_keys,
                               const Dropout& dropout);

// attention_plain.cu: for any of the four types and head sizes up to most_plain_head_size().
void plain_attention(cudaStream_t stream, Slice out, Slice log_sum_exp, Slice qkv,
                     const AttentionShape& shape, const std::int32_t* first_keys,
                     const Dropout& dropout);
void plain_attention_backward(cudaStream_t stream, Slice dqkv, Slice dout, Slice log_sum_exp,
                              const void* products, Slice qkv, const AttentionShape& shape,
                              const std::int32_t* first_keys, const Dropout& dropout);
// Throws Error (bad_input) if heads of that size do not fit these kernels.
void check_plain_head_size(DType dtype, Count head_size);
// products = the products of out and dout, which both backward kernels need.
void attention_products(cudaStream_t stream, void* products, Slice dout, Slice out,
                        const AttentionShape& shape);

}  // namespace lockstep::cuda
