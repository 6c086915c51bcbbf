// The dynamic shared memory of a block, as an array of any type.
#pragma once

#include <cuda_runtime.h>

namespace lockstep::cuda {

// Aligned to 1024 bytes; as many bytes as the launch's geometry says, the same for all threads of a
// block. They hold anything when the block begins.
template <typename T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}

}  // namespace lockstep::cuda
