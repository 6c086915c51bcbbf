// CUDA status codes as errors.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <string_view>

#include "collectives/base/error.h"

namespace lockstep::cuda {

// Throws Error (bad_input) with the attempted action `what` and the runtime's message, unless
// `status` is success.
inline void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  throw Error(ErrorKind::bad_input, std::string("CUDA: ") + std::string(what) + ": " +
                                        cudaGetErrorName(status) + ", " +
                                        cudaGetErrorString(status));
}

}  // namespace lockstep::cuda
