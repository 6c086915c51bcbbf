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

struct WithoutEffect {
  const char *flag, *reason;
};
constexpr WithoutEffect flags_without_effect[] = {
    {"-z,--blocking", "each operation is measured alone, after a barrier"},
    {"-G,--cudagraph", "operations are called one by one"},
    {"-C,--report_cputime", "times are the host's, or on GPUs the GPU's"},
    {"-p,--parallel_init", "all ranks start at the same time"},
    {"-R,--local_register", "the transport decides which memory to register"},
    {"-x,--cta_policy", "it divides a GPU among NCCL's kernels"},
    {"-D,--device_implementation", "these kernels are nccl-tests' own; choose an --algorithm"},
    {"-V,--device_cta_count", "it is for the kernels of -D"},
    {"-y,--stream_null", "a rank's work on a GPU has a stream of its own"}};

void read_without_effect(BenchCommand& c) {
  std::vector<std::string>& said = c.options.without_effect;
  const auto say = [&](std::string_view flag, std::string_view reason) {
    said.push_back(fmt::format("{} has no effect: {}", flag, reason));
  };
  for (const WithoutEffect& each : flags_without_effect)
    if (c.without_effect[each.flag] != 0) say(each.flag, each.reason);
  if (c.options.table.skipped_iterations > 0 && c.table_iterations == 0)
    say("-K,--per_iter_skip", "it is for the columns of -I 1");
}

void read_table(BenchCommand& c) {
  for (const auto& [flag, value] : {std::pair("-I", c.table_iterations),
                                    std::pair("-S", c.timestamps), std::pair("-M", c.memory)})
    require(value == 0 || value == 1, fmt::format("{} {}", flag, value), "use 0 or 1");
  c.options.table.iterations = c.table_iterations == 1;
  c.options.table.timestamps = c.timestamps == 1;
  c.options.table.memory = c.memory == 1;
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
  app.add_option("-u,--unalign", c.options.offset,
                 "elements between an aligned address and the begin of each buffer")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "-I,--per_iter_timing", c.table_iterations,
         "1: columns with the least, greatest, 90 % and 99 % time of an iteration and their "
         "variation")
      ->group(group);
  app.add_option("-K,--per_iter_skip", c.options.table.skipped_iterations,
                 "leave out so many first iterations from the columns of -I")
      ->group(group);
  app.add_option("-S,--report_timestamps", c.timestamps, "1: a column with the time of day")
      ->group(group);
  app.add_option("-M,--memory,--memory_report", c.memory, "1: the memory of a rank, at the end")
      ->group(group);
  for (const WithoutEffect& each : flags_without_effect)
    app.add_option(each.flag, c.without_effect[each.flag], "accepted as by nccl-tests; no effect")
        ->group(group);
  app.add_option("-T", c.world.launch.timeout_s, "same as --timeout")->group(group);
}

void read_nccl_flags(BenchCommand& c) {
  read_without_effect(c);
  read_table(c);
  read_cycles(c);
  read_split(c);
  read_least_bandwidth(c);
}

}  // namespace lockstep
