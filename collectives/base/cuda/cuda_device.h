// A card as a device: memory there, arithmetic by kernels.
#pragma once

#include "collectives/base/cuda/allocator.h"
#include "collectives/base/cuda/line.h"
#include "collectives/base/device.h"

namespace lockstep::cuda {

// One for all ranks of this process that share it: what tells them apart is their threads, each of
// which has a line of its own (line.h). Results are those of the host's device, bit for bit; of a
// NaN that was computed, the payload is the card's.
class CudaDevice final : public Device {
 public:
  // By its number among those that CUDA shows.
  explicit CudaDevice(int card) : Device(true), card_(card), allocator_(*this, card) {}
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

  Mark mark(bool timed) override;
  void follow(const Mark& mark) override;
  double seconds_between(const Mark& begin, const Mark& end) override;
  void wait() override;

  CudaMemory memory() const { return allocator_.statistics(); }
  int card() const { return card_; }
  // The calling thread's.
  cudaStream_t stream() const { return this_stream(card_); }

 private:
  const int card_;
  CachingAllocator allocator_;
};

}  // namespace lockstep::cuda
