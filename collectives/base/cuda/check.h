// Errors of the CUDA runtime as errors of ours.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <string_view>

#include "collectives/base/error.h"

namespace lockstep::cuda {

// Throws Error (bad_input) that says what was tried and what the runtime says about it, unless
// `status` is success.
inline void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  throw Error(ErrorKind::bad_input, std::string("CUDA: ") + std::string(what) + ": " +
                                        cudaGetErrorName(status) + ", " +
                                        cudaGetErrorString(status));
}

}  // namespace lockstep::cuda
