// A device without storage: slices have addresses and sizes but no memory. A simulation of
// thousands of ranks counts and times its messages without holding data.
#include <sys/mman.h>

#include <new>

#include "collectives/base/device.h"

namespace lockstep {
namespace {

class NoneDevice final : public Device {
 public:
  std::string_view name() const override { return "none"; }
  bool stores() const override { return false; }

  // Reserved addresses: any access is a segmentation fault.
  std::byte* allocate(Count bytes) override {
    void* const space =
        mmap(nullptr, mapped(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(space);
  }
  void release(std::byte* memory, Count bytes) noexcept override { munmap(memory, mapped(bytes)); }

  void copy(Slice, Slice) override {}
  void zero(Slice) override {}
  void reduce(Slice, Slice, ReduceOp) override {}
  void reduce_all(std::span<const Slice>, std::span<const Slice>, ReduceOp, Count) override {}
  void convert(Slice, Slice) override {}
  void divide(Slice, Count) override {}

 private:
  static std::size_t mapped(Count bytes) {
    return static_cast<std::size_t>(std::max<Count>(bytes, 1));
  }
};

}  // namespace

Device& none_device() {
  static NoneDevice device;
  return device;
}

}  // namespace lockstep
