#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "bench/collectives/tuning_file.h"
#include "cli/bench_command.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/nccl_flags.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/trace.h"
#include "collectives/gather/gather.h"

namespace lockstep {
namespace {

// The command line that makes another program measure the same points.
std::vector<std::string> peer_words(const BenchCommand& c) {
  const BenchOptions& o = c.options;
  std::vector<std::string> words = {"bench", o.operation, "--algorithm", "vendor"};
  const auto add = [&](const char* flag, const auto& value) {
    words.insert(words.end(), {flag, fmt::format("{}", value)});
  };
  if (c.matrix.empty()) {
    add("-b", o.min_bytes), add("-e", o.max_bytes), add("-f", o.factor);
    if (o.step_bytes > 0) add("-i", o.step_bytes);
  } else {
    add("--matrix", c.matrix);
  }
  if (o.skew.zipf > 0) add("--skew", o.skew.name);
  add("-d", c.dtype);
  if (find_operation(o.operation).reduces) add("-o", c.op);
  if (find_operation(o.operation).has_root) add("-r", c.root_text);
  add("--repetitions", o.repetitions), add("-m", o.operations_per_iteration), add("-c", o.checks),
      add("--buffers", c.buffers), add("--timeout", c.world.launch.timeout_s);
  return words;
}

void start_peers(BenchCommand& c) {
  if (c.peers.empty()) return;
  require(c.world.launch.clock == Clock::wall && launch_ranks({.ranks = 0}) == 0,
          "--peer under mpirun or a virtual clock",
          "use it with ranks as threads; under mpirun the library's own call is the algorithm "
          "vendor");
  for (const std::string& library : c.peers) {
    require(library != "nccl", "--peer nccl",
            "NCCL runs in our ranks: with --device cuda and one GPU for each rank, its own call is "
            "the algorithm vendor");
    c.options.peers.push_back(
        std::make_shared<Peer>(PeerCommand{.library = library,
                                           .ranks = c.world.launch.ranks,
                                           .timeout_s = c.world.launch.timeout_s,
                                           .words = peer_words(c)}));
  }
}

// Keeps the file's choices for other operations, transports and numbers of ranks.
void write_tuning(const BenchCommand& c, const Tuning& measured) {
  std::error_code none;
  const Tuning known = std::filesystem::exists(c.tune, none) ? read_tuning(c.tune) : Tuning();
  write_file(c.tune, tuning_json(merged(known, measured)));
}

// What a library in other processes, or a tuning file, does not know.
void refuse_with_several(const BenchCommand& c) {
  for (const auto& [given, flag] : {std::pair(c.options.communicators > 1, "--communicators"),
                                    std::pair(c.options.blocks.are_apart(), "--blocks")}) {
    require(!given || c.peers.empty(), fmt::format("{} with --peer", flag),
            "other libraries measure one operation on contiguous data");
    require(!given || c.tune.empty(), fmt::format("{} with --tune", flag),
            "auto chooses by the times of single operations on contiguous data");
  }
}

int run(BenchCommand& c) {
  read(c);
  read_nccl_flags(c);
  if (!c.tune.empty() && c.options.algorithms.empty()) c.options.algorithms = {"all"};
  if (!c.blocks.empty()) c.options.blocks = blocks_from(c.blocks);
  refuse_with_several(c);
  read_skew(c, launch_ranks(c.world.launch));
  check(c.options, launch_ranks(c.world.launch));
  check_machine(c, launch_ranks(c.world.launch));
  check_files(c);
  start_peers(c);
  const OperationEntry& entry = find_operation(c.options.operation);
  BenchRun measured;
  std::vector<std::string> trace;
  c.world.launch.trace = !c.trace.empty();
  c.world.launch.failed_trace = c.trace;
  c.formats.keep_failure([&] {
    launch_bench(entry, c.options, c.world.launch, [&](RankContext& context) {
      BenchRun mine =
          bench_operation(context, entry, context.world.size(), c.options, c.world.launch);
      std::vector<std::string> events;
      if (context.trace) events = gather_text(context.world, context.trace->events());
      if (context.world.rank() != 0) return;
      measured = std::move(mine);
      trace = std::move(events);
    });
  });
  if (!trace.empty()) write_file(c.trace, trace_file(trace));
  if (!c.tune.empty() && !measured.results.empty()) write_tuning(c, tuning_of(measured, entry));
  return write_results(c, entry, measured, "bandwidth");
}

void add_collective_flags(CLI::App& app, BenchCommand& c) {
  const std::string group = "algorithms";
  app.add_option(
         "--algorithm", c.options.algorithms,
         "algorithms, separated by commas; all: every algorithm; auto, the default: chosen by "
         "--tuned or by the closed forms")
      ->delimiter(',')
      ->group(group);
  app.add_option("--peer", c.peers,
                 "openmpi, mpich, gloo: also measure these libraries' own calls, in separate "
                 "processes, alternating with ours")
      ->delimiter(',')
      ->group(group);
  app.add_option("--serve", c.options.serve, "serve the benchmark that --peer started")->group("");
  app.add_option("--vendor", c.world.launch.vendor, "the library whose ranks are threads")
      ->group("");
  app.add_option("--tuned", c.tuned, "choose algorithms by this file, written by --tune")
      ->group(group);
  app.add_option("--tune", c.tune,
                 "measure all algorithms and write the fastest for each size to this file")
      ->group(group);
  app.add_flag("--cold", c.options.cold,
               "also time the first operation of the run, before anything else is sent")
      ->group("measuring");
  app.add_option("--communicators", c.options.communicators,
                 "run the operation on so many communicators of the same ranks at the same time, "
                 "each with buffers of its own; bandwidths are of all together")
      ->capture_default_str()
      ->group("measuring");
  app.add_option("--blocks", c.blocks,
                 "data that are not contiguous: blocks of so many elements, and the distance of "
                 "their begins (2:8), which are packed and unpacked within the time")
      ->group("measuring");
  app.add_option("--trace", c.trace, trace_help)->group(std::string(files_group));
}

void add_collective(CLI::App& bench, const OperationEntry& entry, Command& chosen) {
  std::string algorithms;
  for (const AnyAlgorithm& algorithm : entry.algorithms)
    algorithms += fmt::format(" {}", algorithm.name);
  CLI::App* app = bench.add_subcommand(std::string(name_of(entry.operation)),
                                       fmt::format("{}:{}", entry.summary, algorithms));
  app->fallthrough();
  when_chosen(*app, [app, &entry, &chosen] {
    auto command = std::make_shared<BenchCommand>();
    command->options.operation = name_of(entry.operation);
    add_collective_flags(*app, *command);
    add_size_flags(*app, *command);
    if (entry.operation == Operation::all_to_all_v) add_skew_flags(*app, *command);
    add_measuring_flags(*app, *command);
    command->world.add(*app);
    add_nccl_flags(*app, *command);
    app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
  });
}

}  // namespace

void add_bench(CLI::App& program, Command& chosen) {
  CLI::App* bench = program.add_subcommand(
      "bench", "benchmark a collective (with nccl-tests' flags and table) or a training technique");
  bench->require_subcommand(1);
  bench->fallthrough();
  when_chosen(*bench, [bench, &chosen] {
    for (const OperationEntry& entry : operations()) add_collective(*bench, entry, chosen);
    add_bench_pairs(*bench, chosen);
    add_bench_ps(*bench, chosen);
    add_bench_pipeline(*bench, chosen);
    add_bench_tensor(*bench, chosen);
    add_bench_sharded(*bench, chosen);
    add_bench_context(*bench, chosen);
    add_bench_factorings(*bench, chosen);
    add_bench_moe(*bench, chosen);
    add_bench_exchange(*bench, chosen);
    add_bench_model(*bench, chosen);
    add_bench_attention(*bench, chosen);
    add_bench_examples(*bench);
  });
}

}  // namespace lockstep
