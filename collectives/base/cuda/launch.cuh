// The one place that launches kernels.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "collectives/base/cuda/check.h"
#include "collectives/base/cuda/geometry.h"

namespace lockstep::cuda {

// Enqueues kernel(arguments...) into the stream. Throws Error if the device refuses the geometry.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const Geometry& geometry, cudaStream_t stream,
            Arguments&&... arguments) {
  // More must be requested explicitly.
  constexpr Count default_shared_bytes = 48 << 10;
  if (geometry.shared_bytes > default_shared_bytes)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(geometry.shared_bytes)),
          "reserve shared memory for a kernel");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(geometry.grid.x, geometry.grid.y, geometry.grid.z);
  config.blockDim = dim3(geometry.block.x, geometry.block.y, geometry.block.z);
  config.dynamicSmemBytes = static_cast<std::size_t>(geometry.shared_bytes);
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...),
        "launch a kernel");
}

}  // namespace lockstep::cuda
