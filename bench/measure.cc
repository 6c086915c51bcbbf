#include "bench/measure.h"

#include <algorithm>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/barrier/barrier.h"

namespace lockstep {

std::vector<double> measure(Communicator& comm, int warmup, int iterations,
                            const std::function<void()>& prepare,
                            const std::function<void()>& operation) {
  const Transport& clock = comm.transport();
  std::vector<double> seconds;
  for (int i = 0; i < warmup + iterations; ++i) {
    prepare();
    barrier(comm);
    const double begin = clock.now_seconds();
    operation();
    if (i >= warmup) seconds.push_back(clock.now_seconds() - begin);
  }
  all_reduce(comm, host_slice(std::span(seconds)), ReduceOp::max);
  return seconds;
}

double copy_bytes_per_second(Communicator& comm, Count bytes, int iterations) {
  const Slice like{.dtype = DType::u8, .device = &host_device()};
  const Memory source = comm.scratch(like, bytes), target = comm.scratch(like, bytes);
  std::fill_n(source.data(), bytes, std::byte{1});
  const auto seconds = measure(
      comm, 1, iterations, [] {},
      [&] { comm.copy(target.slice(bytes, DType::u8), source.slice(bytes, DType::u8)); });
  constexpr int read_and_write = 2;
  return static_cast<double>(read_and_write * bytes * comm.size()) / percentile(seconds, 0.5);
}

double percentile(std::vector<double> samples, double share) {
  std::ranges::sort(samples);
  return samples[static_cast<std::size_t>(share * static_cast<double>(samples.size() - 1) + 0.5)];
}

}  // namespace lockstep
