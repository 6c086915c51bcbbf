// A device is memory and the arithmetic on it. Algorithms never touch elements; devices do.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "collectives/base/dtype.h"
#include "collectives/base/ledger.h"
#include "collectives/base/slice.h"

namespace lockstep {

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  // False: slices have addresses, and nothing behind them.
  virtual bool stores() const { return true; }

  // At least `bytes` bytes, aligned to 64. Release takes the same number.
  virtual std::byte* allocate(Count bytes) = 0;
  virtual void release(std::byte* memory, Count bytes) noexcept = 0;

  // into = from; both of the same count and type.
  virtual void copy(Slice into, Slice from) = 0;
  // into = into (op) from, element by element; avg adds, as sum does.
  virtual void reduce(Slice into, Slice from, ReduceOp op) = 0;
  // Each of `into` = the combination of all of `from` in their order, divided by `divisor`. All of
  // one count and type and apart from each other, but that each of `into` may be its like of
  // `from`.
  virtual void reduce_all(std::span<const Slice> into, std::span<const Slice> from, ReduceOp op,
                          Count divisor) = 0;
  // into = from, rounded to nearest even; of one count, both of floating types.
  virtual void convert(Slice into, Slice from) = 0;
  // data = data / divisor: integers round towards zero. Ends an average.
  virtual void divide(Slice data, Count divisor) = 0;
};

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
