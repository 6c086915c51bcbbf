// A device whose memory has tags: passes all work to another device, and reports its effect on tags.
#pragma once

#include "collectives/base/device.h"
#include "parallel/tags/tag_state.h"

namespace lockstep {

class TaggedDevice final : public Device {
 public:
  // For a device that finishes every operation at once.
  TaggedDevice(Device& inner, TagState& state) : inner_(inner), state_(state) {
    state.tag_memory_of(*this);
  }

  std::string_view name() const override { return inner_.name(); }
  bool stores() const override { return inner_.stores(); }
  bool is_host() const override { return inner_.is_host(); }

  std::byte* allocate(Count bytes) override { return inner_.allocate(bytes); }
  void release(std::byte* memory, Count bytes) noexcept override {
    state_.released(memory, bytes);
    inner_.release(memory, bytes);
  }

  void copy(Slice into, Slice from) override {
    state_.copied(into, from);
    inner_.copy(plain(into), plain(from));
  }
  void convert(Slice into, Slice from) override {
    state_.copied(into, from);
    inner_.convert(plain(into), plain(from));
  }
  void zero(Slice data) override {
    state_.zeroed(data);
    inner_.zero(plain(data));
  }
  void reduce(Slice into, Slice from, ReduceOp op) override {
    state_.added(into, from);
    inner_.reduce(plain(into), plain(from), op);
  }
  // Only inside collectives.
  void reduce_all(std::span<const Slice> into, std::span<const Slice> from, ReduceOp op,
                  Count divisor) override;
  void divide(Slice data, Count divisor) override { inner_.divide(plain(data), divisor); }

 private:
  // Slices of other ranks of this process lie on devices of their own, around the same one.
  Slice plain(Slice slice) const {
    if (dynamic_cast<const TaggedDevice*>(slice.device)) slice.device = &inner_;
    return slice;
  }

  Device& inner_;
  TagState& state_;
};

}  // namespace lockstep
