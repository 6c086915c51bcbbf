#include "cli/nccl_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "collectives/base/error.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

void read_table(BenchCommand& c) {
  c.options.table.is_nccl = c.table == "nccl-tests";
  require(c.options.table.is_nccl || c.table == "lockstep", fmt::format("--table '{}'", c.table),
          "choose lockstep or nccl-tests");
  const std::vector<std::string>& algorithms = c.options.algorithms;
  require(!c.options.table.is_nccl ||
              (algorithms.size() <= 1 && (algorithms.empty() || algorithms[0] != "all") &&
               c.peers.empty() && c.tune.empty()),
          "--table nccl-tests with several algorithms",
          "its rows do not name the algorithm: choose one, without --tune and --peer");
}

void read_cycles(BenchCommand& c) {
  if (!c.cycles) return;
  BenchOptions& o = c.options;
  o.endless = *c.cycles == 0;
  o.repetitions = o.endless ? 1 : *c.cycles;
  o.table.each_repetition = true;
  if (!o.endless) return;
  for (const auto& [flag, value] : {std::pair("--json", c.json), std::pair("--plot", c.plot),
                                    std::pair("--baseline", c.baseline),
                                    std::pair("--tune", c.tune), std::pair("--trace", c.trace)})
    require(value.empty(), fmt::format("-N 0 with {}", flag),
            "it repeats until elements are wrong: choose a number of cycles");
  require(c.peers.empty(), "-N 0 with --peer", "choose a number of cycles");
}

// Empty: none.
std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

void read_split(BenchCommand& c) {
  constexpr const char *rule = "NCCL_TESTS_SPLIT", *mask = "NCCL_TESTS_SPLIT_MASK";
  Split& split = c.options.split;
  if (!c.split.empty())
    split = split_from(c.split, "--split");
  else if (const std::string text = variable(mask); !text.empty())
    split = split_from_mask(text, mask);
  else if (const std::string given = variable(rule); !given.empty())
    split = split_from(given, rule);
  if (split.rule == Split::Rule::none) return;
  c.world.launch.claims.push_back({"--split", split.name});
  require(c.peers.empty(), fmt::format("{} with --peer", split.source),
          "other libraries measure one group: all ranks");
  require(c.matrix.empty(), fmt::format("{} with --matrix", split.source),
          "a matrix is for all ranks; use --skew");
}

void read_least_bandwidth(BenchCommand& c) {
  constexpr const char* name = "NCCL_TESTS_MIN_BW";
  const std::string text = variable(name);
  if (text.empty()) return;
  double least = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), least);
  require(
      code == std::errc() && end == text.data() + text.size() && std::isfinite(least) && least >= 0,
      fmt::format("{}='{}'", name, printable(text)),
      "set it to the bus bandwidth in GB/s that the average must reach, within a tenth");
  c.options.table.least_busbw = least;
}

}  // namespace

void add_nccl_flags(CLI::App& app, BenchCommand& c) {
  const std::string group = "nccl-tests";
  app.add_option("--table", c.table,
                 "lockstep; nccl-tests: its columns, for programs that read its logs")
      ->capture_default_str()
      ->group(group);
  app.add_option("-t,--nthreads", c.threads, "the number of ranks is -t times -g")->group(group);
  app.add_option("-g,--ngpus", c.gpus, "the number of ranks is -t times -g")->group(group);
  app.add_option("-N,--run_cycles", c.cycles,
                 "repetitions of the whole sweep, with rows for each; 0: until elements are wrong")
      ->default_str("1")
      ->excludes(app.get_option("--repetitions"))
      ->group(group);
  app.add_option(
         "--split", c.split,
         "split the ranks into groups that run the operation at the same time: AND, OR, MOD or "
         "DIV with a number, as NCCL_TESTS_SPLIT (MOD 8); rail: ranks with the same place in "
         "their nodes; node: ranks of one node; leaf N: ranks of N nodes")
      ->group(group);
  for (const char* flag : {"-z,--blocking", "-G,--cudagraph", "-C,--report_cputime",
                           "-p,--parallel_init", "-R,--local_register"})
    app.add_option(flag, c.without_effect[flag], "accepted as by nccl-tests; no effect")
        ->group(group);
  app.add_option("-T", c.world.launch.timeout_s, "same as --timeout")->group(group);
}

void read_nccl_flags(BenchCommand& c) {
  read_table(c);
  read_cycles(c);
  read_split(c);
  read_least_bandwidth(c);
}

}  // namespace lockstep
