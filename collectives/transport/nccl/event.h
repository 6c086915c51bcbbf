// CUDA events and streams with an owner.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "collectives/base/cuda/check.h"

namespace lockstep {

class CudaEvent {
 public:
  CudaEvent() {
    cuda::check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "create an event");
  }
  ~CudaEvent() {
    if (event_) cudaEventDestroy(event_);
  }
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }

  void record(cudaStream_t stream) {
    cuda::check(cudaEventRecord(event_, stream), "record an event");
  }
  // Work that is enqueued in the stream from now on starts after the event.
  void stream_wait(cudaStream_t stream) const {
    cuda::check(cudaStreamWaitEvent(stream, event_, 0), "wait for an event");
  }
  bool has_happened() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status != cudaErrorNotReady) cuda::check(status, "query an event");
    return status == cudaSuccess;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStream {
 public:
  CudaStream() {
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
  }
  ~CudaStream() { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace lockstep
