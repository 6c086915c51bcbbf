// The file of what `bench --tune` measured and `auto` chooses by, schema lockstep.tuning/1.
#pragma once

#include <string>

#include "bench/collectives/collective.h"
#include "collectives/tuning.h"

namespace lockstep {

// For every size of the run the algorithm of the smallest median in place (out of place where an
// operation has no other), one entry where it changes.
Tuning tuning_of(const BenchRun& run, const OperationEntry& entry);
// `known` with the choices of `measured` in the place of those of the same operation, transport and
// number of ranks.
Tuning merged(Tuning known, const Tuning& measured);

std::string tuning_json(const Tuning& tuning);
// Throws Error (bad_input) naming the file and what is wrong.
Tuning read_tuning(const std::string& path);

}  // namespace lockstep
