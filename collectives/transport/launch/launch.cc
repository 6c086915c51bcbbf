#include "collectives/transport/launch/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/base/cuda_module.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/limits.h"
#include "collectives/transport/failure/interruption.h"
#include "collectives/transport/launch/absent.h"
#include "collectives/transport/launch/launch_rank.h"
#include "collectives/transport/launch/launch_symmetric.h"
#include "collectives/transport/launch/launchers.h"
#include "collectives/transport/modules/modules.h"
#include "collectives/transport/threads/threads.h"

namespace lockstep {
namespace {

// Runs a rank with its own GPU.
void run_rank_on_gpu(const LaunchOptions& options, Device& gpu,
                     std::unique_ptr<Transport> transport, bool processes, RankHistory& history,
                     const std::function<void(RankContext&)>& program) {
  const auto gpus = open_gpus(std::move(transport), gpu, options.timeout_s);
  run_rank(options, &gpu, gpus->transport(), processes, history, program);
  gpus->finish();
}

bool enqueues(const LaunchOptions& options) { return options.device && options.device->enqueues(); }

// Under a `ulimit -v` that is too low, OpenBLAS and OpenMP, which start a thread for each core, spin
// for ever or end the process without a reason.
void require_addresses(int ranks) {
  const double limit = address_limit();
  if (std::isinf(limit)) return;
  // At exit, OpenBLAS waits for threads that still ask for memory.
  on_exit([](int status, void*) { std::fflush(nullptr), _exit(status); }, nullptr);
  const double needed = least_addresses(ranks);
  constexpr double megabyte = 1e6;
  require(limit >= needed,
          fmt::format("this process may use {:.0f} MB of addresses (ulimit -v), and {} rank{} on "
                      "this machine need{} at least {:.0f} MB",
                      limit / megabyte, ranks, ranks == 1 ? "" : "s", ranks == 1 ? "s" : "",
                      needed / megabyte),
          "raise the limit or start fewer ranks");
}

void launch_threads(const LaunchOptions& options,
                    const std::function<void(RankContext&)>& program) {
  require_threads(options.ranks, fmt::format("--ranks {}", options.ranks),
                  "use fewer ranks; virtual time, as with --clock cpu, has ranks without threads");
  auto ends = threads_world({.ranks = options.ranks,
                             .ranks_per_node = options.links.ranks_per_node,
                             .timeout_s = options.timeout_s});
  const auto vendor = options.vendor.empty()
                          ? nullptr
                          : open_vendor(options.vendor, options.ranks, options.timeout_s);
  const bool own_gpus = enqueues(options) && options.ranks > 1 && cuda_gpus() >= options.ranks;
  std::deque<RankHistory> histories;
  for (int rank = 0; rank < options.ranks; ++rank) histories.emplace_back(rank);
  std::mutex mutex;
  std::exception_ptr first_failure;
  const auto stop = ends.front()->capabilities().failures->stopper();

  const auto run = [&](std::unique_ptr<Transport> end) {
    // A second transport for the same rank, because the first is destroyed before the error arrives
    // here.
    const int own[] = {end->rank()};
    const auto emergency = end->subgroup(own);
    try {
      if (vendor) end = with_vendor(std::move(end), *vendor);
      if (own_gpus)
        run_rank_on_gpu(options, cuda_device(own[0]), std::move(end), false, histories[own[0]],
                        program);
      else
        run_rank(options, options.device, std::move(end), false, histories[own[0]], program);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (emergency->abort(error) || is_first_interrupted(error, first_failure))
        first_failure = std::current_exception();
    }
  };
  {
    const Interruption interruption(stop);
    std::vector<std::jthread> ranks;
    for (auto& end : ends) ranks.emplace_back(run, std::move(end));
  }
  if (first_failure) fail_world(first_failure, options, histories);
}

std::string path_of_rank(const std::string& path, int rank) {
  std::filesystem::path own = path;
  if (!path.empty())
    own.replace_filename(
        fmt::format("{}-{}{}", own.stem().string(), rank, own.extension().string()));
  return own.string();
}

void launch_processes(const LaunchOptions& options,
                      const std::function<void(RankContext&)>& program) {
  const auto world = join_world(options.timeout_s, options.claims);
  auto end = world->transport();
  const int rank = end->rank();
  std::deque<RankHistory> histories;
  RankHistory& history = histories.emplace_back(rank);
  const Interruption interruption(end->capabilities().failures->stopper());
  try {
    if (enqueues(options))
      run_rank_on_gpu(options, cuda_device(local_rank() % cuda_gpus()), std::move(end), true,
                      history, program);
    else
      run_rank(options, options.device, std::move(end), true, history, program);
    world->finish();
  } catch (const std::exception& error) {
    world->fail(error);
    LaunchOptions own = options;
    own.flight = path_of_rank(options.flight, rank);
    own.failed_trace = path_of_rank(options.failed_trace, rank);
    fail_world(std::current_exception(), own, histories);
  }
}

}  // namespace

Clock clock_from_name(std::string_view name) {
  for (const Clock clock : {Clock::wall, Clock::cpu, Clock::unit})
    if (name_of(clock) == name) return clock;
  throw Error(ErrorKind::bad_input, fmt::format("no clock '{}'", name),
              {.hint = "--clock is wall, cpu or unit"});
}

std::string_view name_of(Clock clock) {
  constexpr std::string_view names[] = {"wall", "cpu", "unit"};
  return names[static_cast<std::size_t>(clock)];
}

void check(const LaunchOptions& options) {
  require(options.ranks >= 1, fmt::format("--ranks {}", options.ranks), "use at least 1 rank");
  require_addresses(options.clock == Clock::wall && processes_started() == 0 ? options.ranks : 1);
  require(options.timeout_s > 0, fmt::format("--timeout {}", options.timeout_s),
          "use a time above 0 seconds");
  require(options.clock == Clock::wall || processes_started() == 0,
          fmt::format("the clock {} under mpirun or srun", name_of(options.clock)),
          "virtual ranks live in one process: start one without mpirun, with --ranks");
  require(options.slow_links.empty() || options.clock != Clock::wall, "slow links in real time",
          "choose the clock cpu or unit");
  require(!enqueues(options) || options.clock == Clock::wall,
          fmt::format("--device cuda with the clock {}", name_of(options.clock)),
          "a GPU computes in real time: use --clock wall or --device host");
}

void launch(const LaunchOptions& options, const std::function<void(RankContext&)>& program) {
  check(options);
  if (options.clock != Clock::wall)
    launch_at_once(options, {program});
  else if (processes_started() > 0)
    launch_processes(options, program);
  else
    launch_threads(options, program);
}

void launch_alone(const LaunchOptions& options, int rank,
                  const std::function<void(RankContext&)>& program) {
  RankHistory history(rank);
  run_rank(options, options.device, absent_peers(rank, options.ranks, options.links), false,
           history, program);
}

int launch_ranks(const LaunchOptions& options) {
  const int processes = processes_started();
  return processes > 0 ? processes : options.ranks;
}

std::string launch_transport() {
  const std::string library = library_of_processes();
  return library.empty() ? "threads" : library;
}
bool can_be_vendor(std::string_view library) { return has_vendor(library); }

}  // namespace lockstep
