// Prints measurements like nccl-tests, with columns of our own, or with --table nccl-tests exactly as
// nccl-tests does: one line for each size and algorithm, out-of-place and in-place.
#pragma once

#include "bench/collectives/collective.h"

namespace lockstep {

void print_head(const BenchOptions& options, const OperationEntry& entry, int ranks,
                Communicator& comm, const BenchRun& run);
// Call it for the out-of-place result, then for the in-place one: both are printed on one line.
void print_row(const BenchResult& result, const OperationEntry& entry, const BenchOptions& options,
               const LaunchOptions& world);
void print_end(const BenchRun& run, const OperationEntry& entry, const BenchOptions& options,
               const LaunchOptions& world);

}  // namespace lockstep
