#include "collectives/base/cuda/allocator.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>

#include "collectives/base/cuda/check.h"
#include "collectives/base/cuda/thread_stream.h"
#include "collectives/base/cuda/vectors.h"
#include "collectives/base/error.h"

namespace lockstep::cuda {

std::byte* CachingAllocator::allocate(Count bytes) {
  const Count size = allocation_size(bytes);
  use_gpu(gpu_);
  const std::lock_guard lock(mutex_);
  std::byte* memory = take_kept(size, false);
  if (!memory) memory = take_new(size);
  if (!memory) memory = take_kept(size, true);
  if (!memory) {
    free_kept();
    memory = take_new(size);
  }
  if (!memory) refuse(size);
  ++statistics_.requests;
  statistics_.in_use += size;
  statistics_.peak_in_use = std::max(statistics_.peak_in_use, statistics_.in_use);
  return memory;
}

void CachingAllocator::release(std::byte* memory, Count bytes) noexcept {
  const Count size = allocation_size(bytes);
  const std::lock_guard lock(mutex_);
  statistics_.in_use -= size;
  try {
    kept_[size].push_back({memory, record_event(device_, gpu_, false)});
    statistics_.cached += size;
  } catch (...) {
    // The GPU has failed, so nobody will need the block again.
  }
}

CudaMemory CachingAllocator::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

std::byte* CachingAllocator::take_kept(Count size, bool of_any_stream) {
  std::vector<Block>& blocks = kept_[size];
  const auto fits = [&](const Block& block) {
    return of_any_stream || is_of_this_stream(gpu_, block.released);
  };
  const auto found = std::ranges::find_if(blocks, fits);
  if (found == blocks.end()) return nullptr;
  const Block block = std::move(*found);
  blocks.erase(found);
  statistics_.cached -= size;
  ++statistics_.from_cache;
  block.released.stream_wait();
  return block.memory;
}

// Null if the GPU is full.
std::byte* CachingAllocator::take_new(Count size) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(size));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error
    return nullptr;
  }
  check(status, "allocate memory");
  return static_cast<std::byte*>(memory);
}

// Needs no events: cudaFree waits for all enqueued work.
void CachingAllocator::free_kept() {
  for (const auto& [size, blocks] : kept_)
    for (const Block& block : blocks) check(cudaFree(block.memory), "free memory");
  kept_.clear();
  statistics_.cached = 0;
}

void CachingAllocator::refuse(Count size) const {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "query the free memory");
  throw Error(
      ErrorKind::bad_input,
      fmt::format("the GPU is full: {} bytes were requested, this process holds {}, "
                  "{} of {} are free",
                  size, statistics_.in_use, free, total),
      {.hint = "use smaller micro-batches, fewer ranks or --recompute; nvidia-smi shows who "
               "holds the rest"});
}

}  // namespace lockstep::cuda
