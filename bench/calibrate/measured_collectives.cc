#include "bench/calibrate/measured_collectives.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/collectives/collective.h"
#include "collectives/base/error.h"

namespace lockstep {
namespace {

constexpr const char* training_operations[] = {"all_reduce", "reduce_scatter", "all_gather",
                                               "all_to_all", "send_recv",      "broadcast",
                                               "reduce",     "barrier"};

BenchOptions options_for(const OperationEntry& entry, Count most_bytes, Device& device) {
  constexpr Count least_bytes = 1024;
  BenchOptions options{.operation = std::string(entry.name),
                       .algorithms = {"auto"},
                       .min_bytes = least_bytes,
                       .max_bytes = std::max(least_bytes, most_bytes),
                       .factor = 4,
                       .iterations = 21,
                       .warmup = 3,
                       .checks = 0,
                       .device = &device,
                       .prints = false};
  if (std::ranges::count(entry.algorithms, "ring", &AnyAlgorithm::name) > 0)
    options.algorithms.push_back("ring");
  if (entry.operation == Operation::barrier) options.max_bytes = options.min_bytes;
  return options;
}

void add(std::vector<MeasuredCollective>& all, const MeasuredCollective& now) {
  const auto before = std::ranges::find_if(all, [&](const MeasuredCollective& each) {
    return each.transport == now.transport && each.operation == now.operation &&
           each.algorithm == now.algorithm && each.ranks == now.ranks && each.bytes == now.bytes;
  });
  if (before == all.end())
    all.push_back(now);
  else
    take_mean(before->seconds, now.seconds);
}

// Of all ranks of a world; only rank 0 adds to the profile.
void measure_operation(RankContext& context, const char* name, const std::string& transport,
                       Count most_bytes, const LaunchOptions& world, MachineProfile& profile) {
  const OperationEntry& entry = find_operation(name);
  const int ranks = context.world.size();
  const BenchRun run = bench_operation(
      context, entry, ranks,
      options_for(entry, most_bytes, world.device ? *world.device : host_device()), world);
  if (context.world.rank() != 0) return;
  for (const BenchResult& result : run.results)
    // Training operates in place where an operation can.
    if (result.in_place == entry.in_place)
      add(profile.collectives, {.transport = transport,
                                .operation = name,
                                .algorithm = result.algorithm,
                                .ranks = ranks,
                                .bytes = std::max(1.0, result.problem.bytes()),
                                .seconds = percentile(result.seconds, 0.5)});
}

}  // namespace

void measure_collectives(MachineProfile& profile, Device& device, const std::vector<int>& ranks,
                         Count most_bytes, const std::function<void(double)>& progress) {
  const auto works = static_cast<double>(ranks.size() * std::size(training_operations));
  double done = 0;
  for (const int p : ranks)
    for (const char* name : training_operations) {
      const LaunchOptions world{.ranks = p, .device = &device};
      launch(world, [&](RankContext& context) {
        measure_operation(context, name, profile.transport_of_threads(), most_bytes, world,
                          profile);
      });
      progress(++done / works);
    }
}

bool measure_collectives_of_processes(MachineProfile& profile, Count most_bytes,
                                      const Claims& claims,
                                      const std::function<void(double)>& progress) {
  constexpr auto works = static_cast<double>(2 * std::size(training_operations));
  const std::string transport = launch_transport();
  const LaunchOptions world{.claims = claims};
  bool is_first = false;
  launch(world, [&](RankContext& context) {
    require(context.world.size() == context.world.ranks_per_node(),
            fmt::format("calibrate in {} processes on several nodes", context.world.size()),
            "start them on one: a profile is that of one machine");
    is_first = context.world.rank() == 0;
    double done = 0;
    for (int round = 0; round < 2; ++round)
      for (const char* name : training_operations) {
        measure_operation(context, name, transport, most_bytes, world, profile);
        if (is_first) progress(++done / works);
      }
  });
  return is_first;
}

}  // namespace lockstep
