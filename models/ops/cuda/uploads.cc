#include "models/ops/cuda/uploads.h"

#include <algorithm>
#include <cstring>

#include "collectives/base/cuda/check.h"

namespace lockstep::cuda {

Uploads::~Uploads() {
  for (const Place& place : places_) {
    if (place.read) {
      cudaEventSynchronize(place.read);
      cudaEventDestroy(place.read);
    }
    if (place.memory) cudaFreeHost(place.memory);
  }
  if (number_) cudaFreeHost(number_);
}

void Uploads::make(Place& place, Count bytes) {
  if (place.read)
    check(cudaEventSynchronize(place.read), "wait for a copy");
  else
    check(cudaEventCreateWithFlags(&place.read, cudaEventDisableTiming), "make an event");
  if (place.bytes >= bytes) return;
  if (place.memory) check(cudaFreeHost(place.memory), "free pinned memory");
  place = {.read = place.read};
  void* memory = nullptr;
  check(cudaMallocHost(&memory, static_cast<std::size_t>(bytes)), "allocate pinned memory");
  place.memory = static_cast<std::byte*>(memory);
  place.bytes = bytes;
}

void Uploads::copy(cudaStream_t stream, void* into, const void* from, Count bytes) {
  if (bytes == 0) return;
  Place& place = places_[next_++ % places_.size()];
  make(place, bytes);
  std::memcpy(place.memory, from, static_cast<std::size_t>(bytes));
  check(cudaMemcpyAsync(into, place.memory, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                        stream),
        "copy to the GPU");
  check(cudaEventRecord(place.read, stream), "record an event");
}

double* Uploads::number() {
  if (!number_) {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, sizeof(double)), "allocate pinned memory");
    number_ = static_cast<double*>(memory);
  }
  return number_;
}

}  // namespace lockstep::cuda
