// A block's dynamic shared memory as an array of any type.
#pragma once

#include <cuda_runtime.h>

namespace lockstep::cuda {

// Aligned to 1024 bytes. The launch's geometry sets the size. All threads of a block get the same
// memory; it is uninitialized.
template <typename T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}

}  // namespace lockstep::cuda
