// The device's kernels, as its host side enqueues them.
#pragma once

#include <cuda_runtime.h>

#include <span>

#include "collectives/base/slice.h"

namespace lockstep::cuda {

inline constexpr int most_operands = 16;

// Each of `into` = the combination of `from` in their order, rounded to their type after each; at
// most `most_operands` of either. avg adds, as sum does.
void enqueue_combine(std::span<const Slice> into, std::span<const Slice> from, ReduceOp op,
                     cudaStream_t stream);
void enqueue_divide(Slice data, Count divisor, cudaStream_t stream);
// Between floating types.
void enqueue_convert(Slice into, Slice from, cudaStream_t stream);

}  // namespace lockstep::cuda
