// What the module exports of the device: see cuda_module.h.
#include <cuda_runtime.h>

#include "collectives/base/cuda/check.h"
#include "collectives/base/cuda/cuda_device.h"
#include "collectives/base/cuda_module.h"
#include "collectives/base/error.h"

namespace lockstep::cuda {
namespace {

void require_card() {
  int cards = 0;
  const cudaError_t status = cudaGetDeviceCount(&cards);
  if (status != cudaSuccess) cudaGetLastError();
  require(status != cudaErrorInsufficientDriver,
          "no CUDA: there is no NVIDIA driver, or it is older than the toolkit of this build",
          "install the driver, or build with an older toolkit");
  require(status != cudaErrorNoDevice && (status != cudaSuccess || cards > 0),
          "no CUDA: there is a driver, but no GPU", "does CUDA_VISIBLE_DEVICES hide it?");
  check(status, "find a GPU");
}

// Never destroyed, as its lines and blocks are not: the driver takes all back.
CudaDevice& device() {
  static auto* const only = [] {
    require_card();
    return new CudaDevice;
  }();
  return *only;
}

}  // namespace
}  // namespace lockstep::cuda

extern "C" lockstep::Device* lockstep_cuda_device() { return &lockstep::cuda::device(); }

extern "C" void lockstep_cuda_memory(lockstep::CudaMemory& memory) {
  memory = lockstep::cuda::device().memory();
}

extern "C" void lockstep_cuda_card(lockstep::CudaCard& card) {
  using lockstep::cuda::check;
  lockstep::cuda::require_card();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "tell the card's properties");
  card.name = properties.name;
  card.major = properties.major;
  card.minor = properties.minor;
  card.multiprocessors = properties.multiProcessorCount;
  card.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  check(cudaDriverGetVersion(&card.driver_version), "tell the driver's version");
  check(cudaRuntimeGetVersion(&card.runtime_version), "tell the runtime's version");
}
