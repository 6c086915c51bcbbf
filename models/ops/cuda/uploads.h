// Copies from the host that do not wait for the GPU, unlike copies from ordinary memory.
#pragma once

#include <cuda_runtime.h>

#include <array>

#include "collectives/base/dtype.h"

namespace lockstep::cuda {

class Uploads {
 public:
  Uploads() = default;
  ~Uploads();
  Uploads(const Uploads&) = delete;

  // Enqueues a copy of the bytes. `from` may be changed after it returns.
  void copy(cudaStream_t stream, void* into, const void* from, Count bytes);
  // Pinned memory for one number that the GPU writes.
  double* number();

 private:
  // Pinned memory from which a pending copy reads.
  struct Place {
    std::byte* memory = nullptr;
    Count bytes = 0;
    cudaEvent_t read = nullptr;
  };
  void make(Place& place, Count bytes);

  std::array<Place, 8> places_;  // used in turn
  std::size_t next_ = 0;
  double* number_ = nullptr;
};

}  // namespace lockstep::cuda
