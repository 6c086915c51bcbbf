// Tests of the emulator itself: kernels with known results, and mistakes that it must detect.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "collectives/base/cuda/launch.cuh"
#include "collectives/base/cuda/shared_memory.cuh"
#include "tests/emulator/block.h"
#include "tests/emulator/streams.h"

namespace lockstep::cuda {
namespace {

constexpr Geometry one_block(unsigned threads, Count shared_bytes = 0) {
  return {.grid = {1}, .block = {threads}, .shared_bytes = shared_bytes};
}

// Device memory of T.
template <typename T>
class Array {
 public:
  explicit Array(Count count) : count_(count) {
    check(cudaMalloc(&data_, static_cast<std::size_t>(bytes())), "memory");
  }
  explicit Array(const std::vector<T>& values) : Array(std::ssize(values)) {
    check(cudaMemcpy(data_, values.data(), static_cast<std::size_t>(bytes()), cudaMemcpyDefault),
          "copy");
  }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  T* data() const { return data_; }
  Count bytes() const { return count_ * static_cast<Count>(sizeof(T)); }
  std::vector<T> read() const {
    std::vector<T> values(static_cast<std::size_t>(count_));
    check(cudaMemcpy(values.data(), data_, static_cast<std::size_t>(bytes()), cudaMemcpyDefault),
          "copy");
    return values;
  }

 private:
  Count count_;
  T* data_ = nullptr;
};

__global__ void sum_of_block(float* out, const float* x, int count) {
  __shared__ float sums[32];
  float sum = 0;
  for (unsigned i = threadIdx.x; i < static_cast<unsigned>(count); i += blockDim.x) sum += x[i];
  for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0;
  for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
  if (threadIdx.x == 0) *out = sum;
}

TEST(Emulator, SumsABlockByShuffles) {
  for (const unsigned threads : {32u, 128u, 1024u}) {
    std::vector<float> values(777);
    std::iota(values.begin(), values.end(), 1.0F);
    const Array<float> x(values), out(1);
    launch(sum_of_block, one_block(threads), nullptr, out.data(), x.data(), 777);
    EXPECT_EQ(out.read()[0], 777 * 778 / 2);
  }
}

// Each thread sends its number to its neighbour through shared memory.
__global__ void rotate(int* out, bool waits) {
  int* const shared = dynamic_shared<int>();
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (waits) __syncthreads();
  out[threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
}

TEST(Emulator, AMissingBarrierGivesAWrongResult) {
  for (const auto order : {emulator::ThreadOrder::upwards, emulator::ThreadOrder::downwards}) {
    emulator::set_thread_order(order);
    const Array<int> out(64);
    std::vector<int> expected(64);
    for (int i = 0; i < 64; ++i) expected[static_cast<std::size_t>(i)] = (i + 1) % 64;
    launch(rotate, one_block(64, 64 * sizeof(int)), nullptr, out.data(), true);
    EXPECT_EQ(out.read(), expected);
    launch(rotate, one_block(64, 64 * sizeof(int)), nullptr, out.data(), false);
    EXPECT_NE(out.read(), expected);
  }
  emulator::set_thread_order(emulator::ThreadOrder::alternating);
}

__global__ void lanes(int* out) {
  const int mine = static_cast<int>(threadIdx.x);
  int* const o = out + 6 * mine;
  o[0] = __shfl_sync(0xffffffffu, mine, 5);
  o[1] = __shfl_sync(0xffffffffu, mine, 5, 8);
  o[2] = __shfl_down_sync(0xffffffffu, mine, 3);
  o[3] = __shfl_up_sync(0xffffffffu, mine, 3);
  o[4] = static_cast<int>(__ballot_sync(0xffffffffu, mine % 3 == 0));
  // The two halves of the warp diverge.
  if (mine < 16)
    o[5] = __shfl_xor_sync(0x0000ffffu, mine, 1);
  else
    o[5] = __shfl_xor_sync(0xffff0000u, mine, 2);
}

TEST(Emulator, LanesOfAWarpExchange) {
  const Array<int> out(32 * 6);
  launch(lanes, one_block(32), nullptr, out.data());
  const std::vector<int> got = out.read();
  for (int l = 0; l < 32; ++l) {
    const int* const o = got.data() + 6 * l;
    EXPECT_EQ(o[0], 5);
    EXPECT_EQ(o[1], l / 8 * 8 + 5);
    EXPECT_EQ(o[2], l + 3 < 32 ? l + 3 : l);
    EXPECT_EQ(o[3], l >= 3 ? l - 3 : l);
    EXPECT_EQ(o[4], 0x49249249);
    EXPECT_EQ(o[5], l < 16 ? l ^ 1 : l ^ 2);
  }
}

__global__ void count_threads(int* count) {
  atomicAdd(count, 1);
  if (threadIdx.z == 1) __syncwarp();
}

TEST(Emulator, RunsEveryThreadOfEveryBlock) {
  const Array<int> count(std::vector{0});
  launch(count_threads, {.grid = {3, 2, 2}, .block = {4, 8, 2}}, nullptr, count.data());
  EXPECT_EQ(count.read()[0], 3 * 2 * 2 * 4 * 8 * 2);
}

__global__ void half_waits() {
  if (threadIdx.x < 16)
    __syncthreads();
  else
    __syncwarp();
}

TEST(EmulatorDeathTest, SeesWhatCannotGoOn) {
  const auto deadlock = [] {
    launch(half_waits, one_block(32), nullptr);
    cudaDeviceSynchronize();
  };
  EXPECT_DEATH(deadlock(), "wait");
}

TEST(EmulatorDeathTest, TheHostCannotTouchTheDevicesMemory) {
  const Array<int> memory(std::vector{1, 2, 3});
  EXPECT_DEATH(memory.data()[1] = 4, "");
  EXPECT_DEATH(std::printf("%d", memory.data()[1]), "");
  EXPECT_EQ(memory.read(), (std::vector{1, 2, 3}));
}

__global__ void set(int* at, int value) { *at = value; }
__global__ void copy(int* into, const int* from) { *into = *from; }

TEST(EmulatorDeathTest, AKernelCannotLeaveItsMemory) {
  const Array<int> memory(1024);
  const auto leave = [&](Count place) {
    launch(set, one_block(1), nullptr, memory.data() + place, 1);
    cudaDeviceSynchronize();
  };
  EXPECT_DEATH(leave(1024), "");
  EXPECT_DEATH(leave(-1), "");
  leave(1023);
}

class TwoStreams : public testing::Test {
 protected:
  TwoStreams() {
    check(cudaStreamCreateWithFlags(&first_, cudaStreamNonBlocking), "stream");
    check(cudaStreamCreateWithFlags(&second_, cudaStreamNonBlocking), "stream");
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "event");
  }
  ~TwoStreams() override {
    emulator::set_stream_seed(0);
    cudaStreamDestroy(first_);
    cudaStreamDestroy(second_);
    cudaEventDestroy(event_);
  }
  // What the second stream reads of a number that the first one writes.
  int read_by_second(bool with_event) {
    const Array<int> number(std::vector{1}), seen(std::vector{0});
    launch(set, one_block(1), first_, number.data(), 2);
    if (with_event) {
      check(cudaEventRecord(event_, first_), "record");
      check(cudaStreamWaitEvent(second_, event_), "wait");
    }
    launch(copy, one_block(1), second_, seen.data(), number.data());
    check(cudaStreamSynchronize(second_), "wait");
    return seen.read()[0];
  }

  cudaStream_t first_ = nullptr, second_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

TEST_F(TwoStreams, AMissingEventIsSeen) {
  EXPECT_EQ(read_by_second(true), 2);
  EXPECT_EQ(read_by_second(false), 1);
}

TEST_F(TwoStreams, FromASeedEitherComesFirst) {
  int saw[3] = {};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    emulator::set_stream_seed(seed);
    EXPECT_EQ(read_by_second(true), 2);
    ++saw[read_by_second(false)];
  }
  EXPECT_GT(saw[1], 0);
  EXPECT_GT(saw[2], 0);
}

TEST_F(TwoStreams, PinnedMemoryIsReadWhenTheStreamGetsThere) {
  int* pinned = nullptr;
  check(cudaMallocHost(&pinned, sizeof(int)), "memory");
  int ordinary = *pinned = 1;
  const Array<int> out(2);
  check(cudaMemcpyAsync(out.data(), &ordinary, sizeof(int), cudaMemcpyHostToDevice, first_), "");
  check(cudaMemcpyAsync(out.data() + 1, pinned, sizeof(int), cudaMemcpyHostToDevice, first_), "");
  ordinary = *pinned = 2;
  EXPECT_EQ(out.read(), (std::vector{1, 2}));
  cudaFreeHost(pinned);
}

TEST_F(TwoStreams, EventsTellWhetherTheyWereReached) {
  const Array<int> number(1);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  launch(set, one_block(1), first_, number.data(), 2);
  check(cudaEventRecord(event_, first_), "record");
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  check(cudaEventSynchronize(event_), "wait");
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(first_), cudaSuccess);
}

TEST(Emulator, RefusesWhatDevicesRefuse) {
  const auto refused = [](const Geometry& geometry) {
    try {
      launch(count_threads, geometry, nullptr, nullptr);
      return false;
    } catch (const Error&) {
      return true;
    }
  };
  EXPECT_TRUE(refused({.grid = {0}, .block = {32}}));
  EXPECT_TRUE(refused({.grid = {1}, .block = {1025}}));
  EXPECT_TRUE(refused({.grid = {1, 65536}, .block = {1}}));
  EXPECT_TRUE(refused({.grid = {1}, .block = {1}, .shared_bytes = 228 << 10}));
  EXPECT_EQ(cudaMemset(nullptr, 0, 4), cudaErrorInvalidValue);
  int* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, std::size_t{1} << 50), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace lockstep::cuda
