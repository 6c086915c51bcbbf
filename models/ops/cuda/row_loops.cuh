// Loops of kernels with one warp per row.
#pragma once

#include "models/ops/cuda/numbers.cuh"

namespace lockstep::cuda {

// Calls function(row) for the rows of this warp.
template <typename Function>
__device__ __forceinline__ void for_rows(Count rows, Function function) {
  const Count warps = static_cast<Count>(gridDim.x) * (blockDim.x / 32);
  for (Count r = static_cast<Count>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32; r < rows;
       r += warps)
    function(r);
}

// Calls function(column, here) for this lane's packs of a row. `here` is the number of elements that
// the row has from there on.
template <typename T, typename Function>
__device__ __forceinline__ void for_packs(Count columns, Function function) {
  constexpr Count size = Pack<T>::size;
  for (Count c = threadIdx.x % 32 * size; c < columns; c += 32 * size) function(c, columns - c);
}

}  // namespace lockstep::cuda
