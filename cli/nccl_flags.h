// The flags of nccl-tests that other benchmarks lack.
#pragma once

#include "cli/bench_command.h"

namespace lockstep {

void add_nccl_flags(CLI::App& app, BenchCommand& c);
// Call it after read(). Throws Error (bad_input) naming the flag.
void read_nccl_flags(BenchCommand& c);

}  // namespace lockstep
