// Prints measurements as nccl-tests does: a line for a size and algorithm, out of place and in
// place.
#pragma once

#include "bench/collectives/collective.h"

namespace lockstep {

void print_head(const BenchOptions& options, const OperationEntry& entry, int ranks,
                Communicator& comm, const BenchRun& run);
// The rows out of place and in place come one after the other, and stand in one line.
void print_row(const BenchResult& result, const OperationEntry& entry, const LaunchOptions& world);
void print_end(const BenchRun& run, const OperationEntry& entry);

}  // namespace lockstep
