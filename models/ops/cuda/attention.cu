// Chooses the kernels for an attention: on tensor cores where such kernels exist.
#include <string>

#include "models/ops/cuda/attention_geometry.h"
#include "models/ops/cuda/attention_kernels.h"
#include "models/ops/cuda/kernels.h"
#include "models/ops/cuda/numbers.cuh"

namespace lockstep::cuda {
namespace {

// Calls function(T*, head size as a type) for those half types and head sizes that have tensor-core
// kernels.
template <typename Function>
void with_tensor_kernels(DType dtype, Count head_size, Function function) {
  const auto with_head_size = [&](auto* type) {
    if (head_size == 32) return function(type, std::integral_constant<int, 32>());
    if (head_size == 64) return function(type, std::integral_constant<int, 64>());
    return function(type, std::integral_constant<int, 128>());
  };
  if (dtype == DType::bf16) return with_head_size(static_cast<__nv_bfloat16*>(nullptr));
  return with_head_size(static_cast<__half*>(nullptr));
}

// These kernels copy 16 bytes at a time.
bool fits_tensor_kernels(const AttentionShape& shape, std::initializer_list<Slice> slices) {
  for (const Slice slice : slices)
    if (!has_tensor_attention(slice.dtype, shape.head_size) ||
        reinterpret_cast<std::uintptr_t>(slice.data) % pack_bytes != 0)
      return false;
  return true;
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
  if (!fits_tensor_kernels(shape, {out, qkv})) {
    check_plain_head_size(qkv.dtype, shape.head_size);
    return plain_attention(stream, out, log_sum_exp, qkv, shape, first_keys, dropout);
  }
  with_tensor_kernels(qkv.dtype, shape.head_size, [&]<typename T>(T*, auto head_size) {
    tensor_attention<T, head_size()>(stream, at<T>(out), at<float>(log_sum_exp), at<T>(qkv), shape,
                                     first_keys, dropout);
  });
}

void attention_backward(cudaStream_t stream, Slice dqkv, Slice dout, Slice out, Slice log_sum_exp,
                        Slice qkv, const AttentionShape& shape, const std::int32_t* first_keys,
                        const Dropout& dropout, void* products) {
  attention_products(stream, products, dout, out, shape);
  if (!fits_tensor_kernels(shape, {dqkv, dout, qkv})) {
    check_plain_head_size(qkv.dtype, shape.head_size);
    return plain_attention_backward(stream, dqkv, dout, log_sum_exp, products, qkv, shape,
                                    first_keys, dropout);
  }
  with_tensor_kernels(qkv.dtype, shape.head_size, [&]<typename T>(T*, auto head_size) {
    tensor_attention_backward<T, head_size()>(
        stream, at<T>(dqkv), at<T>(dout), at<float>(log_sum_exp),
        static_cast<const float*>(products), at<T>(qkv), shape, first_keys, dropout);
  });
}

}  // namespace lockstep::cuda
