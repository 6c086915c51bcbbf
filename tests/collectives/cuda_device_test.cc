// The GPU as a device: every type and operation against the host, bit for bit; memory; events.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <latch>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "collectives/base/cuda/vectors.h"
#include "collectives/base/half.h"
#include "collectives/base/trace.h"
#include "collectives/transport/transport.h"
#include "tests/collectives/gpu.h"

namespace lockstep {
namespace {

using test::There;
using test::WithGpu;

// Every cut: all alignments of one operand, and of a second one with the same or another alignment.
TEST(VectorCut, CoversAllElementsAndAlignsVectors) {
  for (const int lanes : {1, 2, 4, 8, 16})
    for (Count count = 0; count < 40; ++count)
      for (std::uintptr_t place = 0; place < 16; ++place) {
        const std::uintptr_t same[] = {place, place + 16}, unaligned[] = {place, place + 1};
        const auto cut = cuda::vector_cut(count, lanes, same);
        ASSERT_EQ(cut.head + cut.vectors * lanes + cut.tail, count);
        ASSERT_TRUE(cut.vectors == 0 || (static_cast<Count>(place) + cut.head) % lanes == 0);
        ASSERT_LT(cut.head, lanes == 1 ? 1 : lanes);
        ASSERT_LT(cut.tail, lanes);
        const auto single = cuda::vector_cut(count, lanes, unaligned);
        ASSERT_EQ(single.vectors, lanes == 1 ? count : 0);
        ASSERT_EQ(single.head + single.vectors + single.tail, count);
      }
}

TEST(AllocationSize, IsEnoughAndNotMuchMore) {
  for (Count bytes = 0; bytes < 100'000; ++bytes) {
    const Count size = cuda::allocation_size(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_EQ(size % 512, 0);
    ASSERT_EQ(cuda::allocation_size(size), size);
    ASSERT_LE(8 * (size - bytes), std::max<Count>(bytes, 4096));
  }
}

// Random numbers that cover a type: for integers all bits, for floating-point types all magnitudes,
// zeros, infinities and subnormals.
std::vector<std::byte> random_numbers(DType dtype, Count count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * element_bytes(dtype)));
  if (!is_floating(dtype)) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }
  std::vector<double> numbers(static_cast<std::size_t>(count));
  std::normal_distribution<double> normal;
  for (double& number : numbers) {
    const auto kind = random() % 12;
    number = normal(random) * std::pow(2.0, static_cast<double>(random() % 8));
    if (kind == 0) number *= 1e-7;
    if (kind == 1) number = 0;
    if (kind == 2) number = -0.0;
    if (kind == 3) number *= 3e4;
    if (kind == 4) number = 1e39;
  }
  host_device().convert({bytes.data(), count, dtype, &host_device()},
                        host_slice(std::span(numbers)));
  return bytes;
}

bool is_nan(DType dtype, const std::byte* element) {
  double value = 0;
  if (!is_floating(dtype)) return false;
  host_device().convert(host_slice(std::span(&value, 1)),
                        {const_cast<std::byte*>(element), 1, dtype, &host_device()});
  return std::isnan(value);
}

// The same bits, except that all NaNs are equal.
void expect_same(DType dtype, const std::vector<std::byte>& got,
                 const std::vector<std::byte>& expected, const std::string& what) {
  const auto each = static_cast<std::size_t>(element_bytes(dtype));
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t at = 0; at < got.size(); at += each) {
    if (std::memcmp(&got[at], &expected[at], each) == 0) continue;
    ASSERT_TRUE(is_nan(dtype, &got[at]) && is_nan(dtype, &expected[at]))
        << what << ", element " << at / each;
  }
}

// Several slices in a device's memory, each `offset` elements after an aligned address.
class Slices {
 public:
  Slices(Device& device, DType dtype, const std::vector<std::vector<std::byte>>& contents,
         Count count, Count offset) {
    for (const auto& content : contents) {
      memories_.emplace_back(device, nullptr, MemoryUse::workspace,
                             (count + offset) * element_bytes(dtype));
      slices.push_back(memories_.back().slice(count + offset, dtype).part(offset, count));
      device.copy(slices.back(),
                  {const_cast<std::byte*>(content.data()), count, dtype, &host_device()});
    }
  }
  std::vector<std::byte> content(std::size_t which) const {
    const Slice& slice = slices[which];
    std::vector<std::byte> bytes(static_cast<std::size_t>(slice.bytes()));
    slice.device->copy({bytes.data(), slice.count, slice.dtype, &host_device()}, slice);
    return bytes;
  }
  std::vector<Slice> slices;

 private:
  std::vector<Memory> memories_;
};

class CudaDevice : public WithGpu {};

TEST_F(CudaDevice, ReducesAsTheHostDoes) {
  std::mt19937_64 random(7);
  for (const DType dtype : all_dtypes)
    for (const ReduceOp op : all_reduce_ops)
      for (const Count count :
           LOCKSTEP_THOROUGH ? std::vector<Count>{0, 1, 37, 1000} : std::vector<Count>{0, 37})
        for (const Count offset : {0, 1, 3})
          for (const int froms : {1, 2, 5, 16, 33}) {
            if (froms > 5 && (count != 37 || offset == 3)) continue;
            std::vector<std::vector<std::byte>> contents;
            for (int i = 0; i < froms; ++i)
              contents.push_back(random_numbers(dtype, count, random));
            const Count divisor = op == ReduceOp::avg ? froms : 1;
            const int intos = std::min(froms, 18);
            const std::string what = fmt::format("{} {} of {} from {} at {}", name_of(op),
                                                 name_of(dtype), count, froms, offset);
            Slices here(host_device(), dtype, contents, count, offset),
                there(gpu(), dtype, contents, count, offset);
            for (Slices* const s : {&here, &there})
              s->slices[0].device->reduce_all(
                  std::span(s->slices).first(static_cast<std::size_t>(intos)), s->slices, op,
                  divisor);
            for (std::size_t i = 0; i < static_cast<std::size_t>(froms); ++i)
              ASSERT_NO_FATAL_FAILURE(expect_same(dtype, there.content(i), here.content(i), what));
          }
}

TEST_F(CudaDevice, ReducesSlicesThatLieDifferently) {
  std::mt19937_64 random(8);
  for (const DType dtype : all_dtypes) {
    const std::vector<std::vector<std::byte>> contents = {random_numbers(dtype, 500, random)};
    Slices into_here(host_device(), dtype, contents, 500, 1),
        from_here(host_device(), dtype, contents, 500, 2),
        into_there(gpu(), dtype, contents, 500, 1), from_there(gpu(), dtype, contents, 500, 2);
    host_device().reduce(into_here.slices[0], from_here.slices[0], ReduceOp::sum);
    gpu().reduce(into_there.slices[0], from_there.slices[0], ReduceOp::sum);
    ASSERT_NO_FATAL_FAILURE(
        expect_same(dtype, into_there.content(0), into_here.content(0), "separate"));
  }
}

TEST_F(CudaDevice, KeepsNaN) {
  const float nan = std::nanf("");
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max, ReduceOp::sum})
    for (const bool first : {false, true}) {
      const There<float> a(gpu(), {first ? nan : 1, 2}), b(gpu(), {first ? 1 : nan, 3});
      gpu().reduce(a.slice(), b.slice(), op);
      ASSERT_TRUE(std::isnan(a.values()[0]));
      ASSERT_FALSE(std::isnan(a.values()[1]));
    }
}

TEST_F(CudaDevice, ConvertsEveryHalfAsTheHostDoes) {
  for (const DType narrow : {DType::f16, DType::bf16}) {
    std::vector<std::uint16_t> bits(1 << 16);
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
    std::vector<std::byte> content(bits.size() * 2);
    std::memcpy(content.data(), bits.data(), content.size());
    const Slices narrow_there(gpu(), narrow, {content}, 1 << 16, 1);
    const Memory wide_there(gpu(), nullptr, MemoryUse::workspace, 4 << 16);
    std::vector<float> here(1 << 16), there(1 << 16);
    gpu().convert(wide_there.slice(1 << 16, DType::f32), narrow_there.slices[0]);
    gpu().copy(host_slice(std::span(there)), wide_there.slice(1 << 16, DType::f32));
    host_device().convert(host_slice(std::span(here)),
                          {content.data(), 1 << 16, narrow, &host_device()});
    ASSERT_EQ(std::memcmp(here.data(), there.data(), 4 << 16), 0);
  }
}

TEST_F(CudaDevice, ConvertsEveryEightBitsAsTheHostDoes) {
  for (const DType narrow : {DType::f8e4m3, DType::f8e5m2}) {
    std::vector<std::byte> content(256);
    for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<std::byte>(i);
    const Slices there(gpu(), narrow, {content}, 256, 1);
    const Memory wide_there(gpu(), nullptr, MemoryUse::workspace, 4 * 256);
    std::vector<float> values(256), wide(256);
    gpu().convert(wide_there.slice(256, DType::f32), there.slices[0]);
    gpu().copy(host_slice(std::span(wide)), wide_there.slice(256, DType::f32));
    host_device().convert(host_slice(std::span(values)),
                          {content.data(), 256, narrow, &host_device()});
    ASSERT_EQ(std::memcmp(wide.data(), values.data(), 4 * 256), 0);
  }
}

TEST_F(CudaDevice, ConvertsBetweenAllFloatingTypesAndDivides) {
  std::mt19937_64 random(9);
  constexpr Count count = 3001;
  for (const DType from : all_dtypes) {
    const auto content = random_numbers(from, count, random);
    for (const Count offset : {0, 1, 2}) {
      Slices here(host_device(), from, {content}, count, offset),
          there(gpu(), from, {content}, count, offset);
      if (is_floating(from))
        for (const DType into :
             {DType::f16, DType::bf16, DType::f32, DType::f64, DType::f8e4m3, DType::f8e5m2}) {
          const std::vector<std::byte> nothing(
              static_cast<std::size_t>(count * element_bytes(into)));
          const Slices a(host_device(), into, {nothing}, count, offset),
              b(gpu(), into, {nothing}, count, offset), c(gpu(), into, {nothing}, count, 3);
          host_device().convert(a.slices[0], here.slices[0]);
          gpu().convert(b.slices[0], there.slices[0]);
          host_device().convert(c.slices[0], here.slices[0]);  // also from the host's memory
          ASSERT_NO_FATAL_FAILURE(expect_same(into, b.content(0), a.content(0), "convert"));
          ASSERT_NO_FATAL_FAILURE(expect_same(into, c.content(0), a.content(0), "upload"));
          const Slices d(host_device(), into, {nothing}, count, 1);
          host_device().convert(d.slices[0], there.slices[0]);
          ASSERT_NO_FATAL_FAILURE(expect_same(into, d.content(0), a.content(0), "download"));
        }
      host_device().divide(here.slices[0], 3);
      gpu().divide(there.slices[0], 3);
      ASSERT_NO_FATAL_FAILURE(expect_same(from, there.content(0), here.content(0), "divide"));
    }
  }
}

TEST_F(CudaDevice, CopiesAndClears) {
  const There<std::int32_t> a(gpu(), {1, 2, 3, 4, 5}, 1), b(gpu(), {0, 0, 0, 0, 0});
  gpu().copy(b.slice(), a.slice());
  gpu().zero(a.slice().part(1, 3));
  ASSERT_EQ(b.values(), (std::vector<std::int32_t>{1, 2, 3, 4, 5}));
  ASSERT_EQ(a.values(), (std::vector<std::int32_t>{1, 0, 0, 0, 5}));
}

TEST_F(CudaDevice, RefusesWhatItCannotReach) {
  std::vector<float> here(4);
  const There<float> there(gpu(), {1, 2, 3, 4});
  EXPECT_THROW(gpu().reduce(there.slice(), host_slice(std::span(here)), ReduceOp::sum), Error);
  EXPECT_THROW(gpu().divide(host_slice(std::span(here)), 2), Error);
  EXPECT_THROW(gpu().convert(there.slice().part(0, 1), {there.slice().data, 1, DType::i32, &gpu()}),
               Error);
}

// The second thread's work runs after the first's, although no thread waits on the host.
TEST_F(CudaDevice, EventsOrderThreads) {
  constexpr Count count = 1 << 12;
  const There<float> ones(gpu(), std::vector<float>(count, 1)),
      sum(gpu(), std::vector<float>(count, 0));
  DeviceEvent event;
  std::latch recorded(1);
  std::jthread second([&] {
    recorded.wait();
    event.stream_wait();
    const There<float> seen(gpu(), std::vector<float>(count, 0));
    gpu().copy(seen.slice(), sum.slice());
    ASSERT_EQ(seen.values(), std::vector<float>(count, 100));
  });
  for (int i = 0; i < 100; ++i) gpu().reduce(sum.slice(), ones.slice(), ReduceOp::sum);
  event = gpu().record(false);
  recorded.count_down();
}

// A stream that waits for an event also waits for the events that the recording stream waited for.
TEST_F(CudaDevice, EventsAreTransitive) {
  constexpr Count count = 1 << 10;
  const There<float> ones(gpu(), std::vector<float>(count, 1)),
      sum(gpu(), std::vector<float>(count, 0));
  DeviceEvent first, second;
  std::latch one(1), two(1);
  std::jthread between([&] {
    one.wait();
    first.stream_wait();
    second = gpu().record(false);
    two.count_down();
  });
  std::jthread last([&] {
    two.wait();
    second.stream_wait();
    const There<float> seen(gpu(), std::vector<float>(count, 0));
    gpu().copy(seen.slice(), sum.slice());
    ASSERT_EQ(seen.values(), std::vector<float>(count, 50));
  });
  for (int i = 0; i < 50; ++i) gpu().reduce(sum.slice(), ones.slice(), ReduceOp::sum);
  first = gpu().record(false);
  one.count_down();
}

TEST_F(CudaDevice, MeasuresTheTimeBetweenEvents) {
  using Clock = std::chrono::steady_clock;
  const There<float> numbers(gpu(), std::vector<float>(1 << 12, 1));
  const Clock::time_point start = Clock::now();
  const DeviceEvent begin = gpu().record(true);
  for (int i = 0; i < 10; ++i) gpu().divide(numbers.slice(), 2);
  const double seconds = gpu().seconds_between(begin, gpu().record(true));
  EXPECT_GT(seconds, 0);
  EXPECT_LE(seconds, std::chrono::duration<double>(Clock::now() - start).count());
}

// On the host's track a span is when the host enqueued; on the GPU's, when the GPU executed.
TEST_F(CudaDevice, TracesTellTheGpusTime) {
  Trace trace(0, steady_seconds);
  trace.place_on(gpu());
  trace.name_track(0, "compute");
  const There<float> data(gpu(), std::vector<float>(1 << 17, 1));
  gpu().synchronize();
  double begin_s = 0, end_s = 0;
  {
    const Trace::Span step(&trace, 0, "step 0", "step");
    begin_s = steady_seconds();
    {
      const Trace::Span span(&trace, 0, "sums", "compute", 12);
      for (int i = 0; i < 4; ++i) gpu().reduce(data.slice(), data.slice(), ReduceOp::sum);
    }
    gpu().synchronize();
    end_s = steady_seconds();
  }
  const auto events = nlohmann::json::parse("[" + trace.events() + "]");
  std::map<std::string, nlohmann::json> found;
  for (const auto& event : events)
    if (event["ph"] == "X")
      found[event["cat"].get<std::string>() + "/" + std::to_string(event["tid"].get<int>())] =
          event;
  ASSERT_EQ(found.size(), 3) << events.dump(1);
  const auto &there = found["compute/100"], &here = found["host/0"];
  EXPECT_EQ(there["name"], "sums");
  EXPECT_EQ(there["args"]["bytes"], 12);
  EXPECT_GT(there["dur"], 0);
  EXPECT_GE(there["ts"].get<double>(), here["ts"].get<double>() - 100);
  EXPECT_LE(there["ts"].get<double>() + there["dur"].get<double>(), end_s * 1e6 + 100);
  EXPECT_GE(there["ts"].get<double>(), begin_s * 1e6 - 100);
  const auto named = [&](const char* name) {
    return std::ranges::any_of(events, [&](const auto& event) {
      return event["ph"] == "M" && event["args"]["name"] == name && event["tid"] == 100;
    });
  };
  EXPECT_TRUE(named("compute (cuda)"));
}

TEST_F(CudaDevice, KeepsReleasedMemoryForItsLine) {
  constexpr Count bytes = (Count{1} << 20) + 12345;  // a size that no other test uses
  const CudaMemory before = cuda_memory(gpu());
  std::byte* first = nullptr;
  {
    const Memory memory(gpu(), nullptr, MemoryUse::workspace, bytes);
    first = memory.data();
    EXPECT_EQ(cuda_memory(gpu()).in_use - before.in_use, cuda::allocation_size(bytes));
  }
  EXPECT_EQ(cuda_memory(gpu()).in_use, before.in_use);
  EXPECT_GE(cuda_memory(gpu()).cached, cuda::allocation_size(bytes));
  std::jthread([&] {
    const Memory other(gpu(), nullptr, MemoryUse::workspace, bytes);
    EXPECT_NE(other.data(), first);
  }).join();
  const Memory again(gpu(), nullptr, MemoryUse::workspace, bytes);
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(cuda_memory(gpu()).requests - before.requests, 3);
  EXPECT_EQ(cuda_memory(gpu()).from_cache - before.from_cache, 1);
}

TEST_F(CudaDevice, AFullGpuSaysHowMuchWasRequested) {
  { const Memory kept(gpu(), nullptr, MemoryUse::workspace, 1 << 20); }
  try {
    const Memory memory(gpu(), nullptr, MemoryUse::workspace, Count{1} << 50);
    FAIL() << "2^50 bytes were allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(std::string(error.what()).find("1125899906842624 bytes were requested"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(cuda_memory(gpu()).cached, 0);
  const Memory memory(gpu(), nullptr, MemoryUse::workspace, 1 << 20);  // still works
}

}  // namespace
}  // namespace lockstep
