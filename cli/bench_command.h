// What the commands of `lockstep bench` have in common: nccl-tests' flags, and what becomes of the
// results.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "bench/collectives/collective.h"
#include "cli/world_flags.h"
#include "collectives/tuning.h"

namespace lockstep {

// The flags as they are given; what they mean is read later.
struct BenchCommand {
  BenchOptions options;
  WorldFlags world{.launch = {.ranks = 2}};
  std::string min_bytes = "8", max_bytes = "32M", step_bytes, dtype = "f32", op = "sum",
              buffers = "hot", device = "host", json, tuned, tune, trace;
  Tuning tuning;
  std::vector<std::string> peers;
  std::string baseline, plot;
  int threads = 0, gpus = 0;  // of nccl-tests: their product is the number of ranks
  int check = 1, whose = 3;
  std::map<std::string, int> without_effect;  // flags of nccl-tests
  CLI::Option* factor = nullptr;
};

void add_size_flags(CLI::App& app, BenchCommand& c);
void add_measuring_flags(CLI::App& app, BenchCommand& c);

// Reads what was given into `options` and `world`. Throws Error (bad_input) naming the flag.
void read(BenchCommand& c);
// Before anything is measured: whether what --json, --plot and the like name can be written or
// read.
void check_files(const BenchCommand& c);
// What --json, --plot (of the kind `plot`) and --baseline ask for: returns the exit status. Throws
// Error (wrong_result) where elements were wrong. Does nothing without results: under mpirun rank 0
// has them.
int write_results(const BenchCommand& c, const OperationEntry& entry, const BenchRun& measured,
                  const std::string& plot);

}  // namespace lockstep
