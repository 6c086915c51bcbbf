// The file that `bench --tune` writes and from which `auto` chooses, schema lockstep.tuning/1.
#pragma once

#include <string>

#include "bench/collectives/collective.h"
#include "collectives/tuning.h"

namespace lockstep {

// For each size of the run, the algorithm with the smallest median, in-place if the operation
// supports it. One entry at each size where the algorithm changes.
Tuning tuning_of(const BenchRun& run, const OperationEntry& entry);
// `known`, with the choices of each operation, transport and number of ranks in `measured` replaced
// by the measured ones.
Tuning merged(Tuning known, const Tuning& measured);

std::string tuning_json(const Tuning& tuning);
// Throws Error (bad_input) naming the file and its fault.
Tuning read_tuning(const std::string& path);

}  // namespace lockstep
