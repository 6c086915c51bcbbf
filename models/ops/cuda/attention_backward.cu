// Causal attention on tensor cores, backward: one kernel for keys and values, one for queries.
#include "collectives/base/cuda/launch.cuh"
#include "models/ops/cuda/attention_backward_keys.cuh"
#include "models/ops/cuda/attention_backward_queries.cuh"
#include "models/ops/cuda/attention_kernels.h"

namespace lockstep::cuda {

template <typename T, int head_size>
void tensor_attention_backward(cudaStream_t stream, T* dqkv, const T* dout,
                               const float* log_sum_exp, const float* products, const T* qkv,
                               const AttentionShape& shape, const std::int32_t* first_keys,
                               const Dropout& dropout) {
  const AttentionCall call(shape, first_keys, dropout);
  launch(backward_keys_kernel<T, head_size>, KeyTiles<head_size>::geometry(shape), stream, dqkv,
         dout, log_sum_exp, products, qkv, call);
  launch(backward_queries_kernel<T, head_size>, QueryTiles<head_size>::geometry(shape), stream,
         dqkv, dout, log_sum_exp, products, qkv, call);
}

template void tensor_attention_backward<__nv_bfloat16, 32>(cudaStream_t, __nv_bfloat16*,
                                                           const __nv_bfloat16*, const float*,
                                                           const float*, const __nv_bfloat16*,
                                                           const AttentionShape&,
                                                           const std::int32_t*, const Dropout&);
template void tensor_attention_backward<__nv_bfloat16, 64>(cudaStream_t, __nv_bfloat16*,
                                                           const __nv_bfloat16*, const float*,
                                                           const float*, const __nv_bfloat16*,
                                                           const AttentionShape&,
                                                           const std::int32_t*, const Dropout&);
template void tensor_attention_backward<__nv_bfloat16, 128>(cudaStream_t, __nv_bfloat16*,
                                                            const __nv_bfloat16*, const float*,
                                                            const float*, const __nv_bfloat16*,
                                                            const AttentionShape&,
                                                            const std::int32_t*, const Dropout&);
template void tensor_attention_backward<__half, 32>(cudaStream_t, __half*, const __half*,
                                                    const float*, const float*, const __half*,
                                                    const AttentionShape&, const std::int32_t*,
                                                    const Dropout&);
template void tensor_attention_backward<__half, 64>(cudaStream_t, __half*, const __half*,
                                                    const float*, const float*, const __half*,
                                                    const AttentionShape&, const std::int32_t*,
                                                    const Dropout&);
template void tensor_attention_backward<__half, 128>(cudaStream_t, __half*, const __half*,
                                                     const float*, const float*, const __half*,
                                                     const AttentionShape&, const std::int32_t*,
                                                     const Dropout&);

}  // namespace lockstep::cuda
