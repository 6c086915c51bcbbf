#include "bench/measure.h"

#include <algorithm>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/barrier/barrier.h"
#include "collectives/broadcast/broadcast.h"

namespace lockstep {

std::vector<std::vector<double>> measure(Communicator& comm, int warmup, int iterations,
                                         const std::vector<Timed>& compared, WhoseTime whose) {
  const Transport& clock = comm.transport();
  std::vector<std::vector<double>> seconds(compared.size());
  const auto run = [&](std::size_t which, bool counts) {
    if (compared[which].prepare) compared[which].prepare();
    barrier(comm);
    comm.transport().align();
    const double begin = clock.now_seconds();
    compared[which].operation();
    if (counts) seconds[which].push_back(clock.now_seconds() - begin);
  };
  for (int i = 0; i < warmup + iterations; ++i)
    for (std::size_t k = 0; k < compared.size(); ++k)
      run(i % 2 == 0 ? k : compared.size() - 1 - k, i >= warmup);

  for (std::vector<double>& samples : seconds) {
    const Slice all = host_slice(std::span(samples));
    if (whose == WhoseTime::rank_0)
      broadcast(comm, all, 0);
    else
      all_reduce(comm, all,
                 whose == WhoseTime::average   ? ReduceOp::avg
                 : whose == WhoseTime::fastest ? ReduceOp::min
                                               : ReduceOp::max,
                 "recursive_doubling");
  }
  return seconds;
}

double percentile(std::vector<double> samples, double share) {
  std::ranges::sort(samples);
  return samples[static_cast<std::size_t>(share * static_cast<double>(samples.size() - 1) + 0.5)];
}

}  // namespace lockstep
