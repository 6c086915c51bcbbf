#include "collectives/transport/mpi/start_watchdog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/base/printable.h"
#include "collectives/transport/failure/waited_time.h"
#include "collectives/transport/mpi/local_ranks.h"

namespace lockstep {
namespace {

// Ranks start one after another, and MPI_Init computes: more so if they share cores.
double seconds_to_start(int ranks_here) {
  const double cores = std::max(1U, std::thread::hardware_concurrency());
  return 5 + 0.5 * ranks_here / cores;
}

// "rank 1 (process 4711) is stopped; rank 3 has no process on this host".
std::string late_ranks(const std::vector<LocalRank>& here, const Joining& joining) {
  std::vector<std::string> late;
  for (const LocalRank& rank : here)
    if (rank.is_stopped)
      late.push_back(fmt::format("rank {} (process {}) is stopped", rank.rank, rank.process));
  for (int rank = 0; rank < joining.processes && late.empty(); ++rank)
    if (std::ranges::find(here, rank, &LocalRank::rank) == here.end())
      late.push_back(fmt::format("{} of {} ranks run on this host, without rank {}", here.size(),
                                 joining.processes, rank));
  if (late.empty()) late.emplace_back("all of them run on this host");
  return fmt::format("{}", fmt::join(late, "; "));
}

}  // namespace

StartWatchdog::StartWatchdog(const Joining& joining)
    : joining_(joining), thread_([this] { watch(); }) {}

StartWatchdog::~StartWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    has_joined_ = true;
  }
  joined_.notify_all();
  thread_.join();
}

void StartWatchdog::watch() {
  constexpr auto look = std::chrono::milliseconds(50);
  const double limit_s =
      joining_.timeout_s + seconds_to_start(static_cast<int>(local_ranks().size()));
  WaitedTime waited;
  std::unique_lock lock(mutex_);
  while (!joined_.wait_for(lock, look, [&] { return has_joined_; })) {
    if (waited.look() < limit_s) continue;
    const std::vector<LocalRank> here = local_ranks();
    // One of the running ranks reports for all of them, before mpirun ends it because the others
    // have ended.
    const auto runs = [](const LocalRank& rank) { return !rank.is_stopped; };
    const auto speaker = std::ranges::find_if(here, runs);
    constexpr auto time_to_speak = std::chrono::milliseconds(500);
    if (!joining_.refusal.empty())
      fmt::print(stderr, "lockstep: {}\n", printable(joining_.refusal, /*keeps_lines=*/true));
    else if (speaker == here.end() || speaker->process == getpid())
      fmt::print(
          stderr,
          "lockstep: [timeout] after {:.1f} s not all ranks have started MPI, though {}: {}; "
          "raise --timeout if they are only slow\n",
          waited.seconds(), joining_.launcher, late_ranks(here, joining_));
    else
      std::this_thread::sleep_for(time_to_speak);
    std::fflush(nullptr);
    const ErrorKind kind = joining_.refusal.empty() ? ErrorKind::timeout : ErrorKind::bad_input;
    _exit(Error(kind, "").exit_status());
  }
}

}  // namespace lockstep
