#include "collectives/transport/launch.h"

#include <fmt/format.h>

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/transport/counting.h"
#include "collectives/transport/mpi_loader.h"
#include "collectives/transport/threads.h"
#include "collectives/transport/tracing.h"
#include "collectives/transport/virtual/virtual_world.h"

namespace lockstep {
namespace {

// Runs the program on one rank whose end of the world is `transport`.
void run_rank(const LaunchOptions& options, std::unique_ptr<Transport> transport, bool processes,
              const std::function<void(RankContext&)>& program) {
  Counters counters;
  Ledger ledger;
  std::optional<Trace> trace;
  if (options.trace) {
    trace.emplace(transport->rank(), [end = transport.get()] { return end->now_seconds(); });
    trace->name_track(0, "compute");
  }
  if (options.fault) transport = faulty(std::move(transport), *options.fault, processes);
  transport = counting(std::move(transport), counters);
  if (trace) transport = tracing(std::move(transport), *trace);

  Trace* const records = trace ? &*trace : nullptr;
  Communicator world(std::move(transport),
                     {.ledger = &ledger, .trace = records, .tuning = options.tuning});
  RankContext context{world, counters, ledger, records};
  program(context);
}

void launch_threads(const LaunchOptions& options,
                    const std::function<void(RankContext&)>& program) {
  auto ends = threads_world({.ranks = options.ranks,
                             .ranks_per_node = options.links.ranks_per_node,
                             .timeout_s = options.timeout_s});
  std::mutex mutex;
  std::exception_ptr first_failure;

  const auto run = [&](std::unique_ptr<Transport> end) {
    // A second end to the same rank, because the first is gone when the error arrives here.
    const int own[] = {end->rank()};
    const auto emergency = end->subgroup(own);
    try {
      run_rank(options, std::move(end), false, program);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (emergency->abort(error)) first_failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> ranks;
    for (auto& end : ends) ranks.emplace_back(run, std::move(end));
  }
  if (first_failure) std::rethrow_exception(first_failure);
}

void launch_virtual(const LaunchOptions& options,
                    const std::function<void(RankContext&)>& program) {
  VirtualTime time(options.clock == Clock::cpu);
  std::exception_ptr first_failure;
  auto ends = virtual_world(time, options.ranks, options.links);
  for (auto& owned : ends) {
    const auto run = [&] {
      auto end = std::move(owned);
      const int own[] = {end->rank()};
      const auto emergency = end->subgroup(own);
      try {
        run_rank(options, std::move(end), false, program);
      } catch (const std::exception& error) {
        if (emergency->abort(error)) first_failure = std::current_exception();
      }
    };
    time.add(run, 0);
  }
  time.run();
  if (first_failure) std::rethrow_exception(first_failure);
}

void launch_processes(const LaunchOptions& options,
                      const std::function<void(RankContext&)>& program) {
  const auto world = open_process_world(options.timeout_s);
  try {
    run_rank(options, world->transport(), true, program);
  } catch (const std::exception& error) {
    world->fail(error);
    throw;
  }
  world->finish();
}

}  // namespace

Clock clock_from_name(std::string_view name) {
  for (const Clock clock : {Clock::wall, Clock::cpu, Clock::unit})
    if (name_of(clock) == name) return clock;
  throw Error(ErrorKind::bad_input, fmt::format("no clock '{}'", name),
              {.hint = "--clock is wall, cpu or unit"});
}

std::string_view name_of(Clock clock) {
  switch (clock) {
    case Clock::wall:
      return "wall";
    case Clock::cpu:
      return "cpu";
    case Clock::unit:
      return "unit";
  }
  return "unknown";
}

void launch(const LaunchOptions& options, const std::function<void(RankContext&)>& program) {
  require(options.ranks >= 1, fmt::format("--ranks {}", options.ranks), "use at least 1 rank");
  require(options.timeout_s > 0, fmt::format("--timeout {}", options.timeout_s),
          "use a time above 0 seconds");
  require(options.clock == Clock::wall || processes_started() == 0,
          fmt::format("the clock {} under mpirun or srun", name_of(options.clock)),
          "virtual ranks live in one process: start it alone, with --ranks");
  if (options.clock != Clock::wall)
    launch_virtual(options, program);
  else if (processes_started() > 0)
    launch_processes(options, program);
  else
    launch_threads(options, program);
}

int launch_ranks(const LaunchOptions& options) {
  const int processes = processes_started();
  return processes > 0 ? processes : options.ranks;
}

}  // namespace lockstep
