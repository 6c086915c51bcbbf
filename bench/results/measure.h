// Measures operations on all ranks.
#pragma once

#include <functional>
#include <vector>

#include "collectives/communicator.h"

namespace lockstep {

// One operation to measure.
struct Timed {
  std::function<void()> prepare;  // not timed
  std::function<void()> operation;
  // Instead of both: runs in other processes. Called on rank 0; returns the seconds of their ranks.
  std::function<std::vector<double>()> elsewhere;
};

// Prepares, waits at a barrier, and runs the operation. Returns the seconds it took on this rank,
// by its device's clock if the device enqueues.
double run_once(Communicator& comm, const Timed& timed);

// Which rank's time is an iteration's time.
enum class WhoseTime { rank_0, average, fastest, slowest };

// Runs each of `compared` once per iteration, in reverse order in every second iteration, so that
// disturbances of the machine affect all alike. A barrier precedes each run. The first `warmup`
// iterations do not count. If one of them runs in other processes, these evict our data from the
// caches, so uncounted runs precede each counted one. Returns the seconds of each operation, by
// iteration; the same on every rank.
std::vector<std::vector<double>> measure(Communicator& comm, int warmup, int iterations,
                                         const std::vector<Timed>& compared,
                                         WhoseTime whose = WhoseTime::slowest);

// The sample at `share` (0 to 1) of the sorted samples.
double percentile(std::vector<double> samples, double share);

}  // namespace lockstep
