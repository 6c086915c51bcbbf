// Measures operations on all ranks.
#pragma once

#include <functional>
#include <map>
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

// The times of one rank in the counted runs of an operation, by iteration. Empty if it ran in other
// processes.
struct OwnRuns {
  // From this rank's arrival at the barrier before the run to the barrier's end: the last rank to
  // arrive has the shortest. So the ranks' clocks are never compared.
  std::vector<double> held;
  std::vector<double> seconds;  // from the barrier to the end of the operation
  // The following are empty if the device enqueues or the transport does not count waits. Of
  // `seconds`, for other ranks:
  std::vector<double> waited;
  // The rest of `seconds`, and the time in which this rank did not run while it was in the barrier:
  // if it leaves the barrier late, the others wait for it in the operation.
  std::vector<double> own;
  std::map<int, double> waited_for;  // by world rank, summed over iterations

  void add(const OwnRuns& later);
  // Keeps `held` and `seconds`.
  void forget_waits();
};

// Which rank's time is an iteration's time.
enum class WhoseTime { rank_0, average, fastest, slowest };

// Runs each of `compared` once per iteration, in reverse order in every second iteration, so that
// disturbances of the machine affect all alike. A barrier precedes each run. The first `warmup`
// iterations do not count. If one of them runs in other processes, these evict our data from the
// caches, so uncounted runs precede each counted one. Returns the seconds of each operation, by
// iteration; the same on every rank. `own` gets this rank's times of each operation.
std::vector<std::vector<double>> measure(Communicator& comm, int warmup, int iterations,
                                         const std::vector<Timed>& compared,
                                         WhoseTime whose = WhoseTime::slowest,
                                         std::vector<OwnRuns>* own = nullptr);

// The sample at `share` (0 to 1) of the sorted samples.
double percentile(std::vector<double> samples, double share);

}  // namespace lockstep
