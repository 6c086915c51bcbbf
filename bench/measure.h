// One measurement of one operation on all ranks.
#pragma once

#include <functional>
#include <vector>

#include "collectives/communicator.h"

namespace lockstep {

// Runs prepare() and then the timed operation(), `warmup` + `iterations` times, with a barrier
// before each. Returns for each counted iteration the seconds of the slowest rank; the same on
// every rank.
std::vector<double> measure(Communicator& comm, int warmup, int iterations,
                            const std::function<void()>& prepare,
                            const std::function<void()>& operation);

// Bytes a second that all ranks together copy, each from memory of `bytes` to other memory: what
// bounds a collective between ranks that share the memory. Reads and writes are both counted. The
// same on every rank.
double copy_bytes_per_second(Communicator& comm, Count bytes, int iterations);

// The value at `share` (0 to 1) of the sorted samples.
double percentile(std::vector<double> samples, double share);

}  // namespace lockstep
