#include "cli/nccl_flags.h"

#include <fmt/format.h>

#include "collectives/base/error.h"

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

}  // namespace

void add_nccl_flags(CLI::App& app, BenchCommand& c) {
  const std::string group = "nccl-tests";
  app.add_option("--table", c.table,
                 "lockstep; nccl-tests: its columns, for programs that read its logs")
      ->capture_default_str()
      ->group(group);
  app.add_option("-t,--nthreads", c.threads, "the number of ranks is -t times -g")->group(group);
  app.add_option("-g,--ngpus", c.gpus, "the number of ranks is -t times -g")->group(group);
  for (const char* flag : {"-z,--blocking", "-G,--cudagraph", "-C,--report_cputime",
                           "-p,--parallel_init", "-R,--local_register"})
    app.add_option(flag, c.without_effect[flag], "accepted as by nccl-tests; no effect")
        ->group(group);
  app.add_option("-T", c.world.launch.timeout_s, "same as --timeout")->group(group);
}

void read_nccl_flags(BenchCommand& c) { read_table(c); }

}  // namespace lockstep
