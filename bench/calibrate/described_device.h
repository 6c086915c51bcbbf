// A device around another, which describes its operations as DescribedBackend does those of layers.
#pragma once

#include <functional>
#include <vector>

#include "collectives/base/device.h"
#include "models/ops/described_backend.h"

namespace lockstep {

class DescribedDevice : public Device {
 public:
  // For a device that finishes every operation at once.
  explicit DescribedDevice(Device& inner) : inner_(inner) {}

  std::string_view name() const override { return inner_.name(); }
  bool stores() const override { return inner_.stores(); }
  bool is_host() const override { return inner_.is_host(); }
  std::byte* allocate(Count bytes) override { return inner_.allocate(bytes); }
  void release(std::byte* memory, Count bytes) noexcept override { inner_.release(memory, bytes); }

  void copy(Slice into, Slice from) override {
    run(call("device_copy", into, 2, false), [&] { inner_.copy(plain(into), plain(from)); });
  }
  void convert(Slice into, Slice from) override {
    run(call("device_convert", into, 2, true), [&] { inner_.convert(plain(into), plain(from)); });
  }
  void zero(Slice data) override {
    run(call("device_zero", data, 1, false), [&] { inner_.zero(plain(data)); });
  }
  void reduce(Slice into, Slice from, ReduceOp op) override {
    run(call("device_reduce", into, 3, true), [&] { inner_.reduce(plain(into), plain(from), op); });
  }
  void divide(Slice data, Count divisor) override {
    run(call("device_divide", data, 2, true), [&] { inner_.divide(plain(data), divisor); });
  }
  // Only inside collectives over shared memory, which are measured whole.
  void reduce_all(std::span<const Slice> into, std::span<const Slice> from, ReduceOp op,
                  Count divisor) override {
    std::vector<Slice> results(into.begin(), into.end()), parts(from.begin(), from.end());
    for (auto* list : {&results, &parts})
      for (Slice& slice : *list) slice = plain(slice);
    inner_.reduce_all(results, parts, op, divisor);
  }

 protected:
  // Called for every operation. work() makes the inner device do it.
  virtual void run(const KernelCall& call, const std::function<void()>& work) = 0;

 private:
  // An operation that accesses the memory of `data` so many times. Arithmetic on 16-bit data differs
  // from that on wider ones; copies are of bytes.
  static KernelCall call(std::string_view name, Slice data, int accesses, bool computes) {
    const bool is_narrow = element_bytes(data.dtype) == element_bytes(DType::bf16);
    return {.name = name,
            .dtype = !computes   ? DType::u8
                     : is_narrow ? DType::bf16
                                 : DType::f32,
            .bytes = static_cast<double>(accesses * data.bytes()),
            .shape = {std::max<Count>(1, data.bytes()), 1, 1}};
  }
  // Slices of other ranks of this process lie on devices of their own, around the same one.
  Slice plain(Slice slice) const {
    if (dynamic_cast<const DescribedDevice*>(slice.device)) slice.device = &inner_;
    return slice;
  }

  Device& inner_;
};

}  // namespace lockstep
