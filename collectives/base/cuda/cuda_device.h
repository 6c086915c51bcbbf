// A GPU as a device: its memory, and arithmetic by kernels.
#pragma once

#include "collectives/base/cuda/allocator.h"
#include "collectives/base/cuda/thread_stream.h"
#include "collectives/base/device.h"

namespace lockstep::cuda {

// All ranks of this process that share the GPU share this object. Each thread has its own stream
// (thread_stream.h). Results equal those of the host's device bit for bit, except that a computed
// NaN has the GPU's payload.
class CudaDevice final : public Device {
 public:
  // `gpu` is the number of the GPU in CUDA's list.
  explicit CudaDevice(int gpu) : Device(true), gpu_(gpu), allocator_(*this, gpu) {}
  std::string_view name() const override { return "cuda"; }

  std::byte* allocate(Count bytes) override { return allocator_.allocate(bytes); }
  void release(std::byte* memory, Count bytes) noexcept override {
    allocator_.release(memory, bytes);
  }
  void copy(Slice into, Slice from) override;
  void zero(Slice data) override;
  void reduce(Slice into, Slice from, ReduceOp op) override;
  void reduce_all(std::span<const Slice> into, std::span<const Slice> from, ReduceOp op,
                  Count divisor) override;
  void convert(Slice into, Slice from) override;
  void divide(Slice data, Count divisor) override;

  DeviceEvent record(bool timed) override;
  void stream_wait(const DeviceEvent& event) override;
  double seconds_between(const DeviceEvent& begin, const DeviceEvent& end) override;
  void synchronize() override;

  CudaMemory memory() const { return allocator_.statistics(); }
  int gpu() const { return gpu_; }
  // The calling thread's stream.
  cudaStream_t stream() const { return this_stream(gpu_); }

 private:
  const int gpu_;
  CachingAllocator allocator_;
};

}  // namespace lockstep::cuda
