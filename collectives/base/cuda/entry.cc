// The module's exported functions: see cuda_module.h.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <vector>

#include "collectives/base/cuda/check.h"
#include "collectives/base/cuda/cuda_device.h"
#include "collectives/base/cuda_module.h"
#include "collectives/base/error.h"

namespace lockstep::cuda {
namespace {

int require_gpus() {
  int gpus = 0;
  const cudaError_t status = cudaGetDeviceCount(&gpus);
  if (status != cudaSuccess) cudaGetLastError();
  require(status != cudaErrorInsufficientDriver,
          "no CUDA: there is no NVIDIA driver, or it is older than the toolkit of this build",
          "install the driver, or build with an older toolkit");
  require(status != cudaErrorNoDevice && (status != cudaSuccess || gpus > 0),
          "no CUDA: there is a driver, but no GPU", "does CUDA_VISIBLE_DEVICES hide it?");
  check(status, "find a GPU");
  return gpus;
}

// Never destroyed, like their streams and blocks: the driver frees everything.
CudaDevice& device(int gpu) {
  static auto& mutex = *new std::mutex;
  static auto& all = *new std::vector<std::unique_ptr<CudaDevice>>;
  const std::lock_guard lock(mutex);
  if (all.empty()) all.resize(static_cast<std::size_t>(require_gpus()));
  require(0 <= gpu && gpu < std::ssize(all), fmt::format("GPU {} of {}", gpu, all.size()),
          "is CUDA_VISIBLE_DEVICES right?");
  auto& wanted = all[static_cast<std::size_t>(gpu)];
  if (!wanted) wanted = std::make_unique<CudaDevice>(gpu);
  return *wanted;
}

}  // namespace
}  // namespace lockstep::cuda

extern "C" int lockstep_cuda_gpus() { return lockstep::cuda::require_gpus(); }

extern "C" lockstep::Device* lockstep_cuda_device(int gpu) { return &lockstep::cuda::device(gpu); }

extern "C" void lockstep_cuda_stream(lockstep::Device& device, lockstep::CudaThreadStream& stream) {
  const auto& gpu = dynamic_cast<lockstep::cuda::CudaDevice&>(device);
  stream = {gpu.gpu(), gpu.stream()};
}

extern "C" void lockstep_cuda_memory(lockstep::Device& device, lockstep::CudaMemory& memory) {
  memory = dynamic_cast<lockstep::cuda::CudaDevice&>(device).memory();
}

extern "C" void lockstep_cuda_gpu(int number, lockstep::CudaGpu& gpu) {
  using lockstep::cuda::check;
  lockstep::cuda::require_gpus();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, number), "query the GPU's properties");
  gpu.name = properties.name;
  gpu.major = properties.major;
  gpu.minor = properties.minor;
  gpu.multiprocessors = properties.multiProcessorCount;
  gpu.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  check(cudaDriverGetVersion(&gpu.driver_version), "query the driver's version");
  check(cudaRuntimeGetVersion(&gpu.runtime_version), "query the runtime's version");
}
