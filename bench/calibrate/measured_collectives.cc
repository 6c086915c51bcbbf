#include "bench/calibrate/measured_collectives.h"

#include <algorithm>

#include "bench/collectives/collective.h"

namespace lockstep {
namespace {

constexpr const char* training_operations[] = {"all_reduce", "reduce_scatter", "all_gather",
                                               "all_to_all", "send_recv",      "broadcast",
                                               "reduce",     "barrier"};

BenchOptions options_for(const OperationEntry& entry, Count most_bytes) {
  constexpr Count least_bytes = 1024;
  BenchOptions options{.operation = std::string(entry.name),
                       .algorithms = {"auto"},
                       .min_bytes = least_bytes,
                       .max_bytes = std::max(least_bytes, most_bytes),
                       .factor = 4,
                       .iterations = 21,
                       .warmup = 3,
                       .checks = 0,
                       .prints = false};
  if (std::ranges::count(entry.algorithms, "ring", &AnyAlgorithm::name) > 0)
    options.algorithms.push_back("ring");
  if (entry.operation == Operation::barrier) options.max_bytes = options.min_bytes;
  return options;
}

void add(std::vector<MeasuredCollective>& all, const char* operation, int ranks,
         const BenchResult& result) {
  const MeasuredCollective now{.operation = operation,
                               .algorithm = result.algorithm,
                               .ranks = ranks,
                               .bytes = std::max(1.0, result.problem.bytes()),
                               .seconds = percentile(result.seconds, 0.5)};
  const auto before = std::ranges::find_if(all, [&](const MeasuredCollective& each) {
    return each.operation == now.operation && each.algorithm == now.algorithm &&
           each.ranks == now.ranks && each.bytes == now.bytes;
  });
  if (before == all.end())
    all.push_back(now);
  else
    take_mean(before->seconds, now.seconds);
}

}  // namespace

void measure_collectives(MachineProfile& profile, const std::vector<int>& ranks, Count most_bytes,
                         const std::function<void(double)>& progress) {
  const auto works = static_cast<double>(ranks.size() * std::size(training_operations));
  double done = 0;
  for (const int p : ranks)
    for (const char* name : training_operations) {
      const OperationEntry& entry = find_operation(name);
      const BenchOptions options = options_for(entry, most_bytes);
      const LaunchOptions world{.ranks = p};
      launch(world, [&](RankContext& context) {
        const BenchRun run = bench_operation(context, entry, p, options, world);
        if (context.world.rank() != 0) return;
        for (const BenchResult& result : run.results)
          // Training operates in place where an operation can.
          if (result.in_place == entry.in_place) add(profile.collectives, name, p, result);
      });
      progress(++done / works);
    }
}

}  // namespace lockstep
