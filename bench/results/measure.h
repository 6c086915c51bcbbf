// Measurements of operations on all ranks.
#pragma once

#include <functional>
#include <vector>

#include "collectives/communicator.h"

namespace lockstep {

// One of the things that are compared.
struct Timed {
  std::function<void()> prepare;  // before the clock starts
  std::function<void()> operation;
  // In place of the two: runs elsewhere. Called on rank 0; the seconds of each rank there.
  std::function<std::vector<double>()> elsewhere;
};

// Prepares, waits for all ranks, and runs the operation; the seconds it took here: where the rank
// keeps its tensors on a device that enqueues, the seconds it took there.
double run_once(Communicator& comm, const Timed& timed);

// Whose time an iteration's is.
enum class WhoseTime { rank_0, average, fastest, slowest };

// Runs each of `compared` in turn, iteration by iteration, every second time in reverse order, so
// that what disturbs the machine disturbs all alike; a barrier before each run. The first `warmup`
// rounds do not count. Where something runs elsewhere, in other processes, each run follows some
// that do not count, because those before it left the caches to others. Returns the seconds of
// each, by iteration; the same on every rank.
std::vector<std::vector<double>> measure(Communicator& comm, int warmup, int iterations,
                                         const std::vector<Timed>& compared,
                                         WhoseTime whose = WhoseTime::slowest);

// The value at `share` (0 to 1) of the sorted samples.
double percentile(std::vector<double> samples, double share);

}  // namespace lockstep
