// Common to the commands of `lockstep bench`: nccl-tests' flags, and writing of the results.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/collectives/collective.h"
#include "bench/results/measurements.h"
#include "cli/result_formats.h"
#include "cli/world_flags.h"
#include "collectives/tuning.h"

namespace lockstep {

// The flags as given. read() interprets them.
struct BenchCommand {
  BenchOptions options;
  WorldFlags world{.launch = {.ranks = 2}};
  std::string min_bytes = "8", max_bytes = "32M", step_bytes, dtype = "f32", op = "sum",
              root_text = "0", buffers = "hot", device, json, tuned, tune, trace, blocks;
  std::string skew = "uniform", matrix;  // for all_to_all_v
  std::string table = "lockstep", split;
  std::optional<int> cycles;  // nccl-tests' -N
  Tuning tuning;
  std::vector<std::string> peers;
  std::string baseline, plot;
  ResultFormats formats;
  std::optional<Measurements> before;  // measurements of the baseline
  int threads = 0, gpus = 0;  // nccl-tests' -t and -g: their product is the number of ranks
  // Not given: chosen by the clock.
  std::optional<int> iterations, warmup, check;
  int whose = 3;
  std::map<std::string, int> without_effect;             // nccl-tests' flags that are ignored
  int table_iterations = 0, timestamps = 0, memory = 0;  // nccl-tests' -I, -S and -M
  CLI::Option* factor = nullptr;
  CLI::Option *reduction = nullptr, *root = nullptr;  // null in commands without them
};

void add_size_flags(CLI::App& app, BenchCommand& c);
void add_skew_flags(CLI::App& app, BenchCommand& c);  // after the size flags
void add_measuring_flags(CLI::App& app, BenchCommand& c);

// Sets `options` and `world` from the flags. Throws Error (bad_input) naming the flag.
void read(BenchCommand& c);
// Reads --skew and --matrix for `ranks` ranks. Throws Error (bad_input).
void read_skew(BenchCommand& c, int ranks);
// Throws Error (bad_input) unless this machine has the memory and the threads to measure on this
// many ranks.
void check_machine(const BenchCommand& c, int ranks);
// Checks before measuring that the files of --json, --plot and the like can be written, and reads
// --baseline. Throws Error (bad_input).
void check_files(BenchCommand& c);
// Carries out --json, --csv and the like, --plot (a plot of the kind `plot`) and --baseline. Returns the exit status.
// Throws Error (wrong_result) if elements were wrong. Does nothing without results: under mpirun
// only rank 0 has them.
int write_results(BenchCommand& c, const OperationEntry& entry, const BenchRun& measured,
                  const std::string& plot);

// Returns the bytes that a flag gives. Throws Error (bad_input) that names the flag.
std::int64_t given_bytes(const std::string& text, const char* flag);

// "nvlink,hdr" are two links; one like "alpha=1us,beta=1GB/s" has its own commas.
std::vector<std::string> link_names(const std::vector<std::string>& given);

}  // namespace lockstep
