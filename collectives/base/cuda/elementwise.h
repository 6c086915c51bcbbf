// Enqueues the device's elementwise kernels.
#pragma once

#include <cuda_runtime.h>

#include <span>

#include "collectives/base/slice.h"

namespace lockstep::cuda {

inline constexpr int most_operands = 16;

// Each of `into` = the combination of `from` in order, rounded to the element type after each
// step. At most `most_operands` of each. avg adds, like sum.
void enqueue_combine(std::span<const Slice> into, std::span<const Slice> from, ReduceOp op,
                     cudaStream_t stream);
void enqueue_divide(Slice data, Count divisor, cudaStream_t stream);
// Between floating types.
void enqueue_convert(Slice into, Slice from, cudaStream_t stream);

}  // namespace lockstep::cuda
