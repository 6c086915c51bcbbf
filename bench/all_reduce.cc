#include "bench/all_reduce.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/environment.h"
#include "bench/measure.h"
#include "bench/table.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"

namespace lockstep {
namespace {

// Distinct for every rank and index and integer-valued, small enough that sums of many ranks are
// exact in every type that counts to 255.
template <typename T>
T input_of(int rank, Count index) {
  return static_cast<T>((rank * 7 + index * 3) % 11 + 1);
}

template <typename T>
void fill(Slice data, int rank) {
  const auto values = host_span<T>(data);
  for (Count i = 0; i < data.count; ++i) values[i] = input_of<T>(rank, i);
}

// Elements that are not the exact result. The inputs repeat every 11 elements, so 11 results are
// computed.
template <typename T>
Count wrong_in(Slice data, int ranks, ReduceOp op) {
  constexpr Count period = 11;
  T expected[period];
  for (Count i = 0; i < period; ++i) {
    T value = input_of<T>(0, i);
    for (int rank = 1; rank < ranks; ++rank) {
      const T other = input_of<T>(rank, i);
      if (op == ReduceOp::sum || op == ReduceOp::avg) value = static_cast<T>(value + other);
      if (op == ReduceOp::prod) value = static_cast<T>(value * other);
      if (op == ReduceOp::min) value = std::min(value, other);
      if (op == ReduceOp::max) value = std::max(value, other);
    }
    expected[i] = op == ReduceOp::avg ? static_cast<T>(value / static_cast<T>(ranks)) : value;
  }
  Count wrong = 0;
  const auto values = host_span<T>(data);
  for (Count i = 0; i < data.count; ++i) wrong += values[i] != expected[i % period];
  return wrong;
}

template <typename Function>
void with_type(DType dtype, Function function) {
  switch (dtype) {
    case DType::f32:
      return function(float{});
    case DType::f64:
      return function(double{});
    case DType::i32:
      return function(std::int32_t{});
    case DType::u32:
      return function(std::uint32_t{});
    case DType::i64:
      return function(std::int64_t{});
    case DType::u64:
      return function(std::uint64_t{});
    default:
      require(false, fmt::format("bench cannot check results in {}", name_of(dtype)),
              "choose f32, f64, i32, u32, i64 or u64");
  }
}

struct Point {
  std::string algorithm;
  std::int64_t bytes = 0;
  bool in_place = false;
};

struct Measured {
  std::vector<double> seconds;
  double wrong = 0;  // over all ranks
};

Measured run_point(Communicator& comm, const BenchOptions& options, const Point& point) {
  const Slice like{.dtype = options.dtype, .device = &host_device()};
  const Count count = point.bytes / element_bytes(options.dtype);
  const Memory input_memory = comm.scratch(like, count), output_memory = comm.scratch(like, count);
  const Slice input = input_memory.slice(count, options.dtype),
              output = output_memory.slice(count, options.dtype);
  with_type(options.dtype, [&]<typename T>(T) { fill<T>(input, comm.rank()); });
  std::memset(output.data, 0, static_cast<std::size_t>(output.bytes()));

  Measured result;
  result.seconds = measure(
      comm, options.warmup, options.iterations,
      [&] {
        if (point.in_place) comm.copy(output, input);
      },
      [&] {
        if (!point.in_place) comm.copy(output, input);
        all_reduce(comm, output, options.op, point.algorithm);
      });
  with_type(options.dtype, [&]<typename T>(T) {
    result.wrong = static_cast<double>(wrong_in<T>(output, comm.size(), options.op));
  });
  all_reduce(comm, host_slice(std::span(&result.wrong, 1)));
  return result;
}

std::vector<Point> points_of(const BenchOptions& options) {
  std::vector<Point> points;
  for (const std::int64_t bytes : sizes_of(options))
    for (const std::string& algorithm : options.algorithms)
      for (const bool in_place : {false, true}) points.push_back({algorithm, bytes, in_place});
  return points;
}

// Hands the samples to Google Benchmark, which keeps statistics and writes them.
void report(benchmark::State& state, const Measured& measured, const Point& point, int ranks) {
  std::size_t i = 0;
  for (auto _ : state) state.SetIterationTime(measured.seconds[i++]);
  const double median = percentile(measured.seconds, 0.5), n = static_cast<double>(point.bytes);
  const double algbw = n / median / 1e9;
  state.counters["ranks"] = ranks;
  state.counters["bytes"] = n;
  state.counters["in_place"] = point.in_place;
  state.counters["algbw_gb_per_s"] = algbw;
  state.counters["busbw_gb_per_s"] = algbw * 2 * (ranks - 1) / ranks;
  state.counters["wrong"] = measured.wrong;
  state.counters["min_us"] = percentile(measured.seconds, 0) * 1e6;
  state.counters["p50_us"] = median * 1e6;
  state.counters["p90_us"] = percentile(measured.seconds, 0.9) * 1e6;
  state.counters["p99_us"] = percentile(measured.seconds, 0.99) * 1e6;
}

}  // namespace

std::vector<std::int64_t> sizes_of(const BenchOptions& options) {
  std::vector<std::int64_t> sizes;
  const Count element = element_bytes(options.dtype);
  for (std::int64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= options.factor)
    if (const std::int64_t whole = bytes / element * element; whole > 0) sizes.push_back(whole);
  return sizes;
}

void check(const BenchOptions& options) {
  const auto within = [](std::int64_t value, std::int64_t least, std::int64_t most,
                         const char* flag) {
    require(value >= least && value <= most, fmt::format("{} {}", flag, value),
            fmt::format("use a number from {} to {}", least, most));
  };
  within(options.min_bytes, 1, std::int64_t{1} << 36, "-b");
  within(options.max_bytes, options.min_bytes, std::int64_t{1} << 36, "-e");
  within(options.factor, 2, 1024, "-f");
  within(options.iterations, 1, 1'000'000, "-n");
  within(options.warmup, 0, 1'000'000, "-w");
  for (const std::string& algorithm : options.algorithms)
    find_algorithm(all_reduce_algorithms(), "all_reduce", algorithm);
  with_type(options.dtype, [](auto) {});
}

std::string bench_all_reduce(RankContext& context, const BenchOptions& options, bool& all_right) {
  Communicator& comm = context.world;
  constexpr Count copy_bytes = Count{64} << 20;
  const double copy_bound = copy_bytes_per_second(comm, copy_bytes, 5);
  const auto points = points_of(options);
  all_right = true;
  if (comm.rank() != 0) {
    for (const Point& point : points) run_point(comm, options, point);
    return "";
  }

  const std::string transport(comm.transport().name());
  BenchTable table(options, comm.size(), copy_bound);
  for (const Point& point : points) {
    const std::string name =
        fmt::format("all_reduce/{}/{}/ranks:{}/bytes:{}/in_place:{}", point.algorithm, transport,
                    comm.size(), point.bytes, point.in_place ? 1 : 0);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [&, point](benchmark::State& state) {
                                   const Measured measured = run_point(comm, options, point);
                                   all_right = all_right && measured.wrong == 0;
                                   report(state, measured, point, comm.size());
                                   state.SetLabel(point.algorithm);
                                 })
        ->UseManualTime()
        ->Iterations(options.iterations)
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::AddCustomContext("lockstep.schema", "lockstep.bench/1");
  benchmark::AddCustomContext("lockstep.environment", environment_json().dump());
  benchmark::AddCustomContext("lockstep.memory_bandwidth_bytes_per_s",
                              fmt::format("{:.6g}", copy_bound));
  benchmark::AddCustomContext("lockstep.dtype", std::string(name_of(options.dtype)));
  benchmark::AddCustomContext("lockstep.reduction", std::string(name_of(options.op)));
  benchmark::RunSpecifiedBenchmarks(&table);
  benchmark::ClearRegisteredBenchmarks();
  return table.json();
}

}  // namespace lockstep
