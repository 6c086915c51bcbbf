// Shared by tests of the GPU's kernels: numbers on the GPU and the same numbers in f64, with which
// the host's backend computes the expected results. The GPU is real or emulated.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "collectives/base/cuda/check.h"
#include "models/ops/cuda/cuda_backend.h"
#include "models/ops/narrow_types.h"
#include "tests/models/numbers.h"

namespace lockstep::cuda {

inline cudaStream_t test_stream() {
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "make a stream");
    return made;
  }();
  return stream;
}

// In the kernels' stream: they do not wait for plain cudaMemcpy, which may return before its numbers
// have arrived on the GPU.
inline void copy_now(void* into, const void* from, Count bytes) {
  check(cudaMemcpyAsync(into, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault,
                        test_stream()),
        "copy");
  check(cudaStreamSynchronize(test_stream()), "wait");
}

// Memory directly from the runtime, of exactly the requested size, so accesses beyond it are detected.
class GpuMemory final : public Device {
 public:
  std::string_view name() const override { return "GPU memory"; }
  std::byte* allocate(Count bytes) override {
    void* memory = nullptr;
    check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "allocate");
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory, Count) noexcept override { cudaFree(memory); }
  void copy(Slice into, Slice from) override { copy_now(into.data, from.data, into.bytes()); }
  void zero(Slice) override { refuse(); }
  void reduce(Slice, Slice, ReduceOp) override { refuse(); }
  void reduce_all(std::span<const Slice>, std::span<const Slice>, ReduceOp, Count) override {
    refuse();
  }
  void convert(Slice, Slice) override { refuse(); }
  void divide(Slice, Count) override { refuse(); }

 private:
  static void refuse() { throw Error(ErrorKind::bad_input, "memory only"); }
};

// Numbers of some type on the GPU, and the same numbers in f64 on the host.
struct Both {
  Tensor gpu;
  std::vector<double> exact;

  Slice on_gpu() const { return exact.empty() ? Slice{} : gpu.slice(); }
  Slice on_host() { return exact.empty() ? Slice{} : slice(exact); }
};

class GpuTest : public testing::TestWithParam<DType> {
 protected:
  GpuTest() {
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0) ledger_.place_on(memory_);
  }
  void SetUp() override {
    if (!ledger_.device()) GTEST_SKIP() << "there is no GPU";
  }

  DType dtype() const { return GetParam(); }
  // For results that are rounded once, relative to the largest of them.
  double tolerance() const {
    switch (dtype()) {
      case DType::f64:
        return 1e-12;
      case DType::f32:
        return 2e-5;
      case DType::f16:
        return 4e-3;
      default:
        return 2e-2;
    }
  }

  Both given(const std::vector<double>& values, DType type) {
    Both both{Tensor({std::ssize(values)}, type, ledger_, MemoryUse::workspace), values};
    std::vector<std::byte> raw(static_cast<std::size_t>(both.gpu.slice().bytes()));
    const Slice rounded{raw.data(), std::ssize(values), type, &host_device()};
    convert(rounded, both.on_host());
    convert(both.on_host(), rounded);
    copy_now(both.gpu.slice().data, raw.data(), std::ssize(raw));
    return both;
  }
  Both given(const std::vector<double>& values) { return given(values, dtype()); }
  Both random(Count count, double scale = 1) {
    std::vector<double> values = normals(count, ++seed_);
    for (double& value : values) value *= scale;
    return given(values);
  }
  // Random values, which must be overwritten.
  Both statistics(Count count) { return given(normals(count, ++seed_), statistics_type(dtype())); }

  std::vector<double> read(Slice gpu) {
    std::vector<std::byte> raw(static_cast<std::size_t>(gpu.bytes()));
    copy_now(raw.data(), gpu.data, gpu.bytes());
    std::vector<double> values(static_cast<std::size_t>(gpu.count));
    convert(slice(values), {raw.data(), gpu.count, gpu.dtype, &host_device()});
    return values;
  }
  void expect_same(const Both& both, double factor = 1) {
    double largest = 1e-3;
    for (const double value : both.exact) largest = std::max(largest, std::abs(value));
    expect_near(read(both.on_gpu()), both.exact, factor * tolerance() * largest);
  }

  GpuMemory memory_;
  Ledger ledger_;
  Backend& host_ = host_backend();
  CudaBackend gpu_{ledger_, test_stream};
  std::uint64_t seed_ = 0;
};

inline std::string type_name(const testing::TestParamInfo<DType>& info) {
  return std::string(name_of(info.param));
}

// Rows and columns: fewer than a warp's lanes, not a multiple of anything, and whole packs.
struct RowsAndColumns {
  Count rows, columns;
};
inline constexpr RowsAndColumns shapes[] = {{1, 1}, {3, 5}, {17, 64}, {9, 200}, {70, 776}};

}  // namespace lockstep::cuda
