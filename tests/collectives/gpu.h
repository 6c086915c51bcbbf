// A GPU for tests: a real one, or the emulated one of the module that LOCKSTEP_CUDA_MODULE names.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/cuda_module.h"
#include "collectives/base/error.h"

namespace lockstep::test {

// A test that needs a GPU; otherwise skipped with the reason.
class WithGpu : public testing::Test {
 protected:
  void SetUp() override {
    try {
      gpu_ = &cuda_device();
    } catch (const Error& error) {
      GTEST_SKIP() << error.message();
    }
  }
  Device& gpu() const { return *gpu_; }

 private:
  Device* gpu_ = nullptr;
};

// Numbers on a device.
template <typename T>
class There {
 public:
  There(Device& device, std::vector<T> values, Count offset = 0)
      : offset_(offset),
        memory_(device, nullptr, MemoryUse::workspace,
                (std::ssize(values) + offset) * Count{sizeof(T)}),
        slice_(memory_.slice(std::ssize(values) + offset, dtype_of<T>())
                   .part(offset, std::ssize(values))) {
    device.copy(slice_, host_slice(std::span(values)));
  }
  Slice slice() const { return slice_; }
  std::vector<T> values() const {
    std::vector<T> result(static_cast<std::size_t>(slice_.count));
    slice_.device->copy(host_slice(std::span(result)), slice_);
    return result;
  }

 private:
  Count offset_;
  Memory memory_;
  Slice slice_;
};

}  // namespace lockstep::test
