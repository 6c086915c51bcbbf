// Copies from the host that do not wait for the GPU, as copies from ordinary memory would.
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

  // Puts a copy of the bytes into the stream; `from` may be changed when this returns.
  void copy(cudaStream_t stream, void* into, const void* from, Count bytes);
  // Memory for one number that comes back.
  double* number();

 private:
  // Pinned memory that a copy on its way is read from.
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
