#include "models/ops/cuda/first_keys.cuh"

#include "collectives/base/cuda/launch.cuh"
#include "models/ops/cuda/geometry.h"
#include "models/ops/cuda/kernels.h"

namespace lockstep::cuda {
namespace {

__global__ void first_keys_kernel(std::int32_t* first, AttentionPart part) {
  const Count queries = part.queries.count(),
              i = static_cast<Count>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= part.sequences * queries) return;
  const Count begin =
      document_begin(part.documents, part.length, i / queries, part.queries[i % queries]);
  first[i] = static_cast<std::int32_t>(part.keys.up_to(begin - 1));
}

__global__ void key_ends_kernel(std::int32_t* end, Positions queries, Positions keys) {
  const Count i = static_cast<Count>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < queries.count()) end[i] = static_cast<std::int32_t>(keys.up_to(queries[i]));
}

}  // namespace

void find_first_keys(cudaStream_t stream, std::int32_t* first, const AttentionPart& part) {
  launch(first_keys_kernel, thread_per_element(part.sequences * part.queries.count()), stream,
         first, part);
}

void find_key_ends(cudaStream_t stream, std::int32_t* end, const AttentionPart& part) {
  launch(key_ends_kernel, thread_per_element(part.queries.count()), stream, end, part.queries,
         part.keys);
}

}  // namespace lockstep::cuda
