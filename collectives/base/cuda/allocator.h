// The card's memory, kept between uses: cudaMalloc and cudaFree stop the whole card.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "collectives/base/cuda_module.h"
#include "collectives/base/device.h"

namespace lockstep::cuda {

// Thread-safe. A released block goes to the line that released it, whose order keeps later uses
// behind earlier ones. Another line gets it only where the card is full, and then waits on the card
// for the release.
class CachingAllocator {
 public:
  // Of that card; `device` is what the blocks' marks are of.
  CachingAllocator(Device& device, int card) : device_(device), card_(card) {}

  // Where the card is full, everything kept is freed first. Throws Error (bad_input) that says how
  // much was asked for, is held here, and is free.
  std::byte* allocate(Count bytes);
  void release(std::byte* memory, Count bytes) noexcept;
  CudaMemory statistics() const;

 private:
  struct Block {
    std::byte* memory;
    Mark released;
  };
  std::byte* take_kept(Count size, bool of_any_line);
  std::byte* take_new(Count size);
  void free_kept();
  [[noreturn]] void refuse(Count size) const;

  Device& device_;
  const int card_;
  mutable std::mutex mutex_;
  std::map<Count, std::vector<Block>> kept_;  // by size
  CudaMemory statistics_;
};

}  // namespace lockstep::cuda
