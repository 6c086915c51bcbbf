// What the module exports of the device: see cuda_module.h.
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

int require_cards() {
  int cards = 0;
  const cudaError_t status = cudaGetDeviceCount(&cards);
  if (status != cudaSuccess) cudaGetLastError();
  require(status != cudaErrorInsufficientDriver,
          "no CUDA: there is no NVIDIA driver, or it is older than the toolkit of this build",
          "install the driver, or build with an older toolkit");
  require(status != cudaErrorNoDevice && (status != cudaSuccess || cards > 0),
          "no CUDA: there is a driver, but no GPU", "does CUDA_VISIBLE_DEVICES hide it?");
  check(status, "find a GPU");
  return cards;
}

// Never destroyed, as their lines and blocks are not: the driver takes all back.
CudaDevice& device(int card) {
  static auto& mutex = *new std::mutex;
  static auto& all = *new std::vector<std::unique_ptr<CudaDevice>>;
  const std::lock_guard lock(mutex);
  if (all.empty()) all.resize(static_cast<std::size_t>(require_cards()));
  require(0 <= card && card < std::ssize(all), fmt::format("card {} of {}", card, all.size()),
          "is CUDA_VISIBLE_DEVICES right?");
  auto& wanted = all[static_cast<std::size_t>(card)];
  if (!wanted) wanted = std::make_unique<CudaDevice>(card);
  return *wanted;
}

}  // namespace
}  // namespace lockstep::cuda

extern "C" int lockstep_cuda_cards() { return lockstep::cuda::require_cards(); }

extern "C" lockstep::Device* lockstep_cuda_device(int card) {
  return &lockstep::cuda::device(card);
}

extern "C" void lockstep_cuda_line(lockstep::Device& device, lockstep::CudaLine& line) {
  const auto& card = dynamic_cast<lockstep::cuda::CudaDevice&>(device);
  line = {card.card(), card.stream()};
}

extern "C" void lockstep_cuda_memory(lockstep::Device& device, lockstep::CudaMemory& memory) {
  memory = dynamic_cast<lockstep::cuda::CudaDevice&>(device).memory();
}

extern "C" void lockstep_cuda_card(int number, lockstep::CudaCard& card) {
  using lockstep::cuda::check;
  lockstep::cuda::require_cards();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, number), "tell the card's properties");
  card.name = properties.name;
  card.major = properties.major;
  card.minor = properties.minor;
  card.multiprocessors = properties.multiProcessorCount;
  card.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  check(cudaDriverGetVersion(&card.driver_version), "tell the driver's version");
  check(cudaRuntimeGetVersion(&card.runtime_version), "tell the runtime's version");
}
