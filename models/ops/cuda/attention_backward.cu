// Causal attention on tensor cores, backward: one kernel for keys and values, one for queries.
#include "collectives/base/cuda/launch.cuh"
#include "models/ops/cuda/attention_backward_keys.cuh"
#include "models/ops/cuda/attention_backward_queries.cuh"
#include "models/ops/cuda/attention_kernels.h"

namespace lockstep::cuda {

void tensor_attention_backward(cudaStream_t stream, const Matrix& dq, const Matrix& dk,
                               const Matrix& dv, Slice dout, Slice log_sum_exp,
                               const float* products, const Matrix& q, const Matrix& k,
                               const Matrix& v, const AttentionPart& part, const SeenKeys& seen,
                               const Dropout& dropout) {
  with_tensor_type(q.slice.dtype, part.head_size, [&]<typename T>(T*, auto head_size) {
    const Operands<T> in(q, k, v);
    const AttentionCall call(part, seen, dropout);
    const auto result = [](const Matrix& of) { return Results<T>(of, true); };
    launch(backward_keys_kernel<T, head_size()>,
           KeyTiles<head_size()>::geometry(shape_of(part, part.keys)), stream, result(dk),
           result(dv), at<const T>(dout), at<const float>(log_sum_exp), products, in, call);
    launch(backward_queries_kernel<T, head_size()>,
           QueryTiles<head_size()>::geometry(shape_of(part, part.queries)), stream, result(dq),
           at<const T>(dout), at<const float>(log_sum_exp), products, in, call);
  });
}

}  // namespace lockstep::cuda
