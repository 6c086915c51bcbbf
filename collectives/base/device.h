// A device is memory and the arithmetic on it. Algorithms never touch elements; devices do.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "collectives/base/dtype.h"
#include "collectives/base/ledger.h"
#include "collectives/base/slice.h"

namespace lockstep {

// A moment in what a thread has a device do: when all is done that it enqueued before. Empty of
// devices that do everything at once.
class Mark {
 public:
  Mark() = default;
  Mark(Device& device, std::shared_ptr<const void> event)
      : device_(&device), event_(std::move(event)) {}

  // What the calling thread enqueues from now on is done after that moment. Never waits.
  void follow() const;
  const void* event() const { return event_.get(); }

 private:
  Device* device_ = nullptr;
  std::shared_ptr<const void> event_;  // the device's own
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  // False: slices have addresses, and nothing behind them.
  virtual bool stores() const { return true; }
  // Whether operations are enqueued and done later: those of a thread in their order, those of
  // several in any that their marks allow. Only a copy or conversion to or from the host's memory
  // returns when it is done.
  bool enqueues() const { return enqueues_; }

  // At least `bytes` bytes, aligned to 64. Release takes the same number.
  virtual std::byte* allocate(Count bytes) = 0;
  virtual void release(std::byte* memory, Count bytes) noexcept = 0;

  // into = from; both of the same count and type. One of them may be the host's: then either
  // device does it.
  virtual void copy(Slice into, Slice from) = 0;
  // Every byte becomes 0.
  virtual void zero(Slice data) = 0;
  // into = into (op) from, element by element; avg adds, as sum does.
  virtual void reduce(Slice into, Slice from, ReduceOp op) = 0;
  // Each of `into` = the combination of all of `from` in their order, divided by `divisor`. All of
  // one count and type and apart from each other, but that each of `into` may be its like of
  // `from`.
  virtual void reduce_all(std::span<const Slice> into, std::span<const Slice> from, ReduceOp op,
                          Count divisor) = 0;
  // into = from, rounded to nearest even; of one count, both of floating types. One of them may be
  // the host's, as in copy().
  virtual void convert(Slice into, Slice from) = 0;
  // data = data / divisor: integers round towards zero. Ends an average.
  virtual void divide(Slice data, Count divisor) = 0;

  // The moment when all is done that the calling thread has enqueued so far. Between two that are
  // `timed` seconds_between() tells the time, and waits for it.
  virtual Mark mark(bool /*timed*/) { return {}; }
  virtual void follow(const Mark&) {}
  virtual double seconds_between(const Mark& /*begin*/, const Mark& /*end*/) { return 0; }
  // Returns at that moment.
  virtual void wait() {}

 protected:
  explicit Device(bool enqueues = false) : enqueues_(enqueues) {}

 private:
  const bool enqueues_;
};

inline void Mark::follow() const {
  if (event_) device_->follow(*this);
}

// The calling thread's mark on a device, if it enqueues anything there.
inline Mark mark_on(Device* device) {
  return device && device->enqueues() ? device->mark(false) : Mark();
}

// Memory of this process, arithmetic by this thread. f16 and bf16 are added in f32 and rounded to
// nearest even.
Device& host_device();

// No storage: addresses and sizes only, for simulations.
Device& none_device();

// Memory with an owner: charged to a ledger while it lives.
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
