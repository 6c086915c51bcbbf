// A device is memory and arithmetic on it. Algorithms leave all work on elements to devices.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "collectives/base/dtype.h"
#include "collectives/base/ledger.h"
#include "collectives/base/slice.h"

namespace lockstep {

// An event: the point at which all work that a thread has enqueued on a device so far is done.
// Empty for devices that finish every operation at once.
class DeviceEvent {
 public:
  DeviceEvent() = default;
  DeviceEvent(Device& device, std::shared_ptr<const void> event)
      : device_(&device), event_(std::move(event)) {}

  // Work that the calling thread enqueues from now on starts after the event. Never blocks.
  void stream_wait() const;
  const void* event() const { return event_.get(); }

 private:
  Device* device_ = nullptr;
  std::shared_ptr<const void> event_;  // the device's own
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  // False: slices have addresses but no storage.
  virtual bool stores() const { return true; }
  // Whether its memory is ordinary memory of this process.
  virtual bool is_host() const { return false; }
  // Whether operations are asynchronous. Those of one thread run in order; those of several threads
  // in any order that their events allow. Only a copy or conversion to or from the host's memory
  // returns when it is done.
  bool enqueues() const { return enqueues_; }

  // At least `bytes` bytes, aligned to 64. Release takes the same number.
  virtual std::byte* allocate(Count bytes) = 0;
  virtual void release(std::byte* memory, Count bytes) noexcept = 0;

  // into = from. Both have the same count and type. One may lie in the host's memory; then either
  // device can do the copy.
  virtual void copy(Slice into, Slice from) = 0;
  // Every byte becomes 0.
  virtual void zero(Slice data) = 0;
  // into = into (op) from, element by element. avg adds, like sum.
  virtual void reduce(Slice into, Slice from, ReduceOp op) = 0;
  // Each of `into` = the combination of all of `from` in order, divided by `divisor`. All have the
  // same count and type. They must not overlap, except that into[i] may be from[i].
  virtual void reduce_all(std::span<const Slice> into, std::span<const Slice> from, ReduceOp op,
                          Count divisor) = 0;
  // into = from, rounded to nearest even. Both have the same count and floating-point types. One
  // may lie in the host's memory, as in copy().
  virtual void convert(Slice into, Slice from) = 0;
  // data = data / divisor. Integers round towards zero. Completes an average.
  virtual void divide(Slice data, Count divisor) = 0;

  // Records an event after all work that the calling thread has enqueued so far. The time between
  // two `timed` events can be read with seconds_between(), which blocks until the second.
  virtual DeviceEvent record(bool /*timed*/) { return {}; }
  virtual void stream_wait(const DeviceEvent&) {}
  virtual double seconds_between(const DeviceEvent& /*begin*/, const DeviceEvent& /*end*/) {
    return 0;
  }
  // Blocks until all work that the calling thread has enqueued is done.
  virtual void synchronize() {}

 protected:
  explicit Device(bool enqueues = false) : enqueues_(enqueues) {}

 private:
  const bool enqueues_;
};

inline void DeviceEvent::stream_wait() const {
  if (event_) device_->stream_wait(*this);
}

// Records an event of the calling thread if the device enqueues.
inline DeviceEvent record_on(Device* device) {
  return device && device->enqueues() ? device->record(false) : DeviceEvent();
}

// This process's memory; the calling thread computes. f16 and bf16 are added in f32 and rounded to
// nearest even.
Device& host_device();
// For tests: from now on new and freed memory of the host device holds NaNs, to detect
// uninitialized reads and use after free. Off at first.
void poison_host_memory(bool is_poisoned);

// No storage, only addresses and sizes: for simulations.
Device& none_device();

// Memory with an owner, charged to a ledger while it lives.
class Memory {
 public:
  Memory() = default;
  Memory(Device& device, Ledger* ledger, MemoryUse use, Count bytes);
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  std::byte* data() const { return data_; }
  Count bytes() const { return bytes_; }
  Slice slice(Count count, DType dtype) const { return {data_, count, dtype, device_}; }

 private:
  Device* device_ = nullptr;
  Ledger* ledger_ = nullptr;
  MemoryUse use_ = MemoryUse::workspace;
  std::byte* data_ = nullptr;
  Count bytes_ = 0;
};

}  // namespace lockstep
