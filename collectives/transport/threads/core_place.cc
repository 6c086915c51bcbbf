#include "collectives/transport/threads/core_place.h"

#include <sched.h>

namespace lockstep {

void CorePlace::note() {
  const int core = sched_getcpu();
  if (core != core_.load(std::memory_order_relaxed)) core_.store(core, std::memory_order_relaxed);
}

void CorePlace::part_from(const CorePlace& other, int rank) {
  note();
  if (core_.load(std::memory_order_relaxed) == other.core_.load(std::memory_order_relaxed))
    go_home(rank);
}

void CorePlace::go_home(int rank) {
  note();
  if (core_.load(std::memory_order_relaxed) == home_) return;
  constexpr auto between_moves = std::chrono::microseconds(200);
  const auto now = std::chrono::steady_clock::now();
  if (now - moved_ < between_moves) return;
  moved_ = now;

  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  int place = rank % CPU_COUNT(&all);
  for (home_ = -1; place >= 0;)
    if (CPU_ISSET(++home_, &all)) --place;
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(home_, &own);
  if (sched_setaffinity(0, sizeof own, &own) == 0) sched_setaffinity(0, sizeof all, &all);
  note();
}

}  // namespace lockstep
