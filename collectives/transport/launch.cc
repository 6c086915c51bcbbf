#include "collectives/transport/launch.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "collectives/base/cuda_module.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/limits.h"
#include "collectives/transport/absent.h"
#include "collectives/transport/counting.h"
#include "collectives/transport/flight.h"
#include "collectives/transport/interruption.h"
#include "collectives/transport/modules.h"
#include "collectives/transport/mpi_loader.h"
#include "collectives/transport/threads.h"
#include "collectives/transport/tracing.h"
#include "collectives/transport/virtual/virtual_world.h"

namespace lockstep {
namespace {

// Runs one rank. If there are several, adds the rank to what it throws.
void run_named(RankContext& context, const std::function<void(RankContext&)>& program) {
  try {
    program(context);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    const int rank = context.world.rank();
    if (context.world.size() == 1) throw;
    // The operating system refused something, such as output to a full disk.
    if (dynamic_cast<const std::system_error*>(&error))
      throw Error(ErrorKind::bad_input, error.what(),
                  {.rank = rank, .size = context.world.size(), .failed_rank = rank});
    throw Error(ErrorKind::lost_rank, error.what(),
                {.rank = rank, .size = context.world.size(), .failed_rank = rank});
  }
}

// Runs the program on one rank; `transport` is its end of the world.
void run_rank(const LaunchOptions& options, Device* device, std::unique_ptr<Transport> transport,
              bool processes, FlightRecorder& recorder,
              const std::function<void(RankContext&)>& program) {
  Counters counters;
  Ledger ledger;
  if (device) ledger.place_on(*device);
  std::optional<Trace> trace;
  if (options.trace) {
    trace.emplace(transport->rank(), [end = transport.get()] { return end->now_seconds(); });
    if (device) trace->place_on(*device);
    trace->name_track(0, "compute");
  }
  transport = recording(std::move(transport), recorder);
  if (options.disturbance) transport = disturbed(std::move(transport), *options.disturbance);
  const auto struck = std::make_shared<FaultRecord>();
  if (options.fault) transport = faulty(std::move(transport), *options.fault, processes, struck);
  transport = counting(std::move(transport), counters);
  if (trace) transport = tracing(std::move(transport), *trace);

  Trace* const records = trace ? &*trace : nullptr;
  Communicator world(std::move(transport),
                     {.ledger = &ledger, .trace = records, .tuning = options.tuning});
  RankContext context{world, counters, ledger, records};
  run_named(context, program);
  if (options.fault) require_struck(*options.fault, *struck, world.rank());
}

// The same for a rank with its own GPU.
void run_rank_on_gpu(const LaunchOptions& options, Device& gpu,
                     std::unique_ptr<Transport> transport, bool processes, FlightRecorder& recorder,
                     const std::function<void(RankContext&)>& program) {
  const auto gpus = open_gpus(std::move(transport), gpu, options.timeout_s);
  run_rank(options, &gpu, gpus->transport(), processes, recorder, program);
  gpus->finish();
}

bool enqueues(const LaunchOptions& options) { return options.device && options.device->enqueues(); }

// Ends a failed world: writes the ranks' last operations to a file, and throws the error with its
// path.
[[noreturn]] void fail(const std::exception_ptr& failure, const std::string& path,
                       const std::vector<const FlightRecorder*>& recorders) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    if (path.empty() || error.kind() == ErrorKind::bad_input) throw;
    ErrorContext context = error.context();
    if (!context.hint.empty()) context.hint += "; ";
    try {
      if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty())
        std::filesystem::create_directories(folder);
      write_file(path, flight_file(error, recorders));
      context.hint += fmt::format("the ranks' last operations are in {}", path);
    } catch (const std::exception& unwritten) {
      context.hint +=
          fmt::format("the ranks' last operations could not be written: {}", unwritten.what());
    }
    throw Error(error.kind(), error.message(), context);
  }
}

// Under a `ulimit -v` that is too low, OpenBLAS and OpenMP, which start a thread for each core, spin
// for ever or end the process without a reason.
void require_addresses(int ranks) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  // At exit, OpenBLAS waits for threads that still ask for memory.
  on_exit([](int status, void*) { std::fflush(nullptr), _exit(status); }, nullptr);
  constexpr std::uint64_t megabyte = 1'000'000, of_program = 144, of_thread = 112;  // measured
  const auto threads = std::max(static_cast<std::uint64_t>(ranks),
                                std::uint64_t{std::thread::hardware_concurrency()});
  const std::uint64_t needed = of_program + of_thread * threads, has = limit.rlim_cur / megabyte;
  require(has >= needed,
          fmt::format("this process may use {} MB of addresses (ulimit -v), and {} rank{} on this "
                      "machine need{} at least {} MB",
                      has, ranks, ranks == 1 ? "" : "s", ranks == 1 ? "s" : "", needed),
          "raise the limit or start fewer ranks");
}

// An interruption is no rank's failure: the first rank that it stops reports it.
bool is_first_interrupted(const std::exception& error, const std::exception_ptr& before) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  return !before && known && known->kind() == ErrorKind::interrupted;
}

std::vector<const FlightRecorder*> pointers(const std::deque<FlightRecorder>& recorders) {
  std::vector<const FlightRecorder*> all;
  for (const FlightRecorder& recorder : recorders) all.push_back(&recorder);
  return all;
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
  std::deque<FlightRecorder> recorders;
  for (int rank = 0; rank < options.ranks; ++rank) recorders.emplace_back(rank);
  std::mutex mutex;
  std::exception_ptr first_failure;
  const auto stop = ends.front()->capabilities().failures->stopper();

  const auto run = [&](std::unique_ptr<Transport> end) {
    // A second transport for the same rank: the first is destroyed before the error arrives here.
    const int own[] = {end->rank()};
    const auto emergency = end->subgroup(own);
    try {
      if (vendor) end = with_vendor(std::move(end), *vendor);
      if (own_gpus)
        run_rank_on_gpu(options, cuda_device(own[0]), std::move(end), false, recorders[own[0]],
                        program);
      else
        run_rank(options, options.device, std::move(end), false, recorders[own[0]], program);
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
  if (first_failure) fail(first_failure, options.flight, pointers(recorders));
}

void launch_virtual(const LaunchOptions& options,
                    const std::function<void(RankContext&)>& program) {
  constexpr double least_bytes_of_rank = 32 << 10;  // its stack, its mailboxes and its records
  require_memory(options.ranks * least_bytes_of_rank,
                 fmt::format("virtual time of {} ranks", options.ranks), "use fewer ranks");
  // With thousands of ranks each keeps fewer operations, so that they fit into memory.
  constexpr std::size_t kept_in_all = 1 << 20, kept_at_least = 64;
  const std::size_t kept = std::clamp(kept_in_all / static_cast<std::size_t>(options.ranks),
                                      kept_at_least, FlightRecorder::kept_operations);
  std::deque<FlightRecorder> recorders;
  for (int rank = 0; rank < options.ranks; ++rank) recorders.emplace_back(rank, kept);
  VirtualTime time(options.clock == Clock::cpu);
  std::exception_ptr first_failure;
  auto ends = virtual_world(time, options.ranks, options.links);
  const auto stop = ends.front()->capabilities().failures->stopper();
  for (auto& owned : ends) {
    const auto run = [&] {
      auto end = std::move(owned);
      const int own[] = {end->rank()};
      const auto emergency = end->subgroup(own);
      try {
        run_rank(options, options.device, std::move(end), false, recorders[own[0]], program);
      } catch (const std::exception& error) {
        if (emergency->abort(error) || is_first_interrupted(error, first_failure))
          first_failure = std::current_exception();
      }
    };
    time.add(run, 0);
  }
  {
    const Interruption interruption(stop);
    time.run();
  }
  if (first_failure) fail(first_failure, options.flight, pointers(recorders));
}

void launch_processes(const LaunchOptions& options,
                      const std::function<void(RankContext&)>& program) {
  const auto world = open_process_world(options.timeout_s);
  auto end = world->transport();
  FlightRecorder recorder(end->rank());
  const Interruption interruption(end->capabilities().failures->stopper());
  try {
    if (enqueues(options))
      run_rank_on_gpu(options, cuda_device(local_rank() % cuda_gpus()), std::move(end), true,
                      recorder, program);
    else
      run_rank(options, options.device, std::move(end), true, recorder, program);
    world->finish();
  } catch (const std::exception& error) {
    world->fail(error);
    std::filesystem::path path = options.flight;
    if (!path.empty())
      path.replace_filename(
          fmt::format("{}-{}{}", path.stem().string(), recorder.rank(), path.extension().string()));
    fail(std::current_exception(), path.string(), {&recorder});
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

void launch(const LaunchOptions& options, const std::function<void(RankContext&)>& program) {
  require(options.ranks >= 1, fmt::format("--ranks {}", options.ranks), "use at least 1 rank");
  require_addresses(options.clock == Clock::wall && processes_started() == 0 ? options.ranks : 1);
  require(options.timeout_s > 0, fmt::format("--timeout {}", options.timeout_s),
          "use a time above 0 seconds");
  require(options.clock == Clock::wall || processes_started() == 0,
          fmt::format("the clock {} under mpirun or srun", name_of(options.clock)),
          "virtual ranks live in one process: start one without mpirun, with --ranks");
  require(!enqueues(options) || options.clock == Clock::wall,
          fmt::format("--device cuda with the clock {}", name_of(options.clock)),
          "a GPU computes in real time: use --clock wall or --device host");
  if (options.clock != Clock::wall)
    launch_virtual(options, program);
  else if (processes_started() > 0)
    launch_processes(options, program);
  else
    launch_threads(options, program);
}

void launch_alone(const LaunchOptions& options, int rank,
                  const std::function<void(RankContext&)>& program) {
  FlightRecorder recorder(rank);
  run_rank(options, options.device, absent_peers(rank, options.ranks, options.links), false,
           recorder, program);
}

int launch_ranks(const LaunchOptions& options) {
  const int processes = processes_started();
  return processes > 0 ? processes : options.ranks;
}
bool can_be_vendor(std::string_view library) { return has_vendor(library); }

}  // namespace lockstep
