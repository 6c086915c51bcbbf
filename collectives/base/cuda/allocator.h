// Caching allocator for GPU memory: cudaMalloc and cudaFree stall the whole GPU.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "collectives/base/cuda_module.h"
#include "collectives/base/device.h"

namespace lockstep::cuda {

// Thread-safe. A released block is reused by the stream that released it, because stream order
// keeps the later use behind the earlier one. Another stream gets it only if the GPU is full; that
// stream then waits for the release.
class CachingAllocator {
 public:
  // `device` owns the events of the blocks.
  CachingAllocator(Device& device, int gpu) : device_(device), gpu_(gpu) {}

  // If the GPU is full, frees all cached blocks first. Throws Error (bad_input) with the bytes
  // requested, held by this process, and free.
  std::byte* allocate(Count bytes);
  void release(std::byte* memory, Count bytes) noexcept;
  CudaMemory statistics() const;

 private:
  struct Block {
    std::byte* memory;
    DeviceEvent released;
  };
  std::byte* take_kept(Count size, bool of_any_stream);
  std::byte* take_new(Count size);
  void free_kept();
  [[noreturn]] void refuse(Count size) const;

  Device& device_;
  const int gpu_;
  mutable std::mutex mutex_;
  std::map<Count, std::vector<Block>> kept_;  // by size
  CudaMemory statistics_;
};

}  // namespace lockstep::cuda
