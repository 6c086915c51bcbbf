// lockstep bench sharded: compares ZeRO and FSDP with DDP and tensor parallelism.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/techniques/sharded.h"
#include "cli/bench_command.h"
#include "cli/command.h"
#include "cli/result_file.h"
#include "cli/result_formats.h"
#include "cli/share.h"
#include "cli/train_options.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

struct ShardedCommand {
  ShardedBenchOptions options;
  std::vector<std::string> links, strategies = {"all"};
  std::string clock = "cpu", device = "host", json, plot;
  ResultFormats formats;
  double teraflops = 400, gigabytes = 3000;
  bool simulates = false;
  CLI::App* app = nullptr;
};

// The speeds of a simulation, in GB/s, from Ethernet to NVLink.
constexpr double usual_speeds[] = {1, 2, 5, 10, 25, 50, 100, 200, 450, 900};

// Refuses flags that have no effect in this mode.
void check_mode(const ShardedCommand& c) {
  const auto refuse = [&](std::initializer_list<const char*> flags, const char* why) {
    for (const char* flag : flags)
      require(c.app->count(flag) == 0, fmt::format("{} {}", flag, why),
              "it has no effect there: omit it");
  };
  const ShardedMode mode = c.options.mode;
  if (mode != ShardedMode::train)
    refuse({"--steps", "--data", "--clock"},
           c.simulates ? "with --simulate" : "with --device none");
  if (mode != ShardedMode::simulate)
    refuse({"--tflops", "--memory-bandwidth"}, "without --simulate");
  if (mode == ShardedMode::count) refuse({"--link"}, "with --device none");
  if (mode == ShardedMode::train && c.options.clock == Clock::wall)
    refuse({"--link"}, "with --clock wall");
}

void read(ShardedCommand& c) {
  ShardedBenchOptions& o = c.options;
  require(c.device == "host" || c.device == "none", fmt::format("--device {}", c.device),
          "host trains or simulates; none counts bytes and memory of rank 0 alone");
  require(c.device == "host" || !c.simulates, "--simulate with --device none",
          "a simulation has no data anyway: omit one of them");
  o.mode = c.simulates ? ShardedMode::simulate
                       : (c.device == "none" ? ShardedMode::count : ShardedMode::train);
  o.clock = clock_from_name(c.clock);
  require(o.clock != Clock::unit, "--clock unit",
          "computing takes no time there; use --simulate, or the clock cpu or wall");
  check_mode(c);
  const int most_ranks = o.mode == ShardedMode::count ? 16384 : 1024;
  for (const int ranks : o.ranks)
    require(ranks >= 1 && ranks <= most_ranks, fmt::format("--ranks {}", ranks),
            fmt::format("use 1 to {}", most_ranks));
  require(o.micro_batch_size >= 1 && o.micro_batch_size <= 1024,
          fmt::format("--micro-batch-size {}", o.micro_batch_size), "use 1 to 1024");
  for (const double rate : {c.teraflops, c.gigabytes})
    require(rate > 0 && std::isfinite(rate), fmt::format("invalid rate {}", rate),
            "--tflops and --memory-bandwidth must be above 0");
  o.roofline = {.flops_per_s = c.teraflops * 1e12, .bytes_per_s = c.gigabytes * 1e9};
  if (!c.links.empty()) o.links = link_names(c.links);
  if (c.links.empty() && o.mode == ShardedMode::simulate) {
    o.links.clear();
    for (const double speed : usual_speeds)
      o.links.push_back(fmt::format("alpha=5us,beta={:g}GB/s", speed));
  }
  if (o.mode == ShardedMode::count || (o.mode == ShardedMode::train && o.clock == Clock::wall))
    o.links = {"-"};
  else
    for (const std::string& link : o.links) given_links(link);
  o.strategies =
      c.strategies == std::vector<std::string>{"all"} ? sharded_strategies() : c.strategies;
  if (o.train.data.empty() && o.mode == ShardedMode::train) o.train.data = default_text();
}

void print_crossovers(const std::vector<ShardedPoint>& points) {
  for (const Crossover& c : crossovers(points))
    fmt::print("# {} ranks: {} is faster than {} {} {:.3g} GB/s\n", c.ranks, c.strategy,
               c.reference, c.is_faster_above ? "above" : "below", c.bytes_per_s / 1e9);
}

int run(ShardedCommand& c) {
  require(launch_ranks({}) == 1, "bench sharded under mpirun or srun",
          "run it without: it starts the ranks of each point itself");
  read(c);
  c.formats.check({c.json, c.plot});
  const std::vector<ShardedPoint> points = bench_sharded(c.options);
  require(std::ranges::any_of(points, [](const ShardedPoint& p) { return p.skipped.empty(); }),
          "no point supports this model", "see the reasons above");
  print_crossovers(points);
  const std::string result = sharded_json(points, c.options);
  ResultFile file(c.json, result);
  c.formats.write(result);
  return file.plot("sharded", c.plot);
}

}  // namespace

void add_bench_sharded(CLI::App& bench, Command& chosen) {
  auto command = std::make_shared<ShardedCommand>();
  ShardedCommand& c = *command;
  CLI::App* app = bench.add_subcommand(
      "sharded",
      "ZeRO and FSDP compared with ddp and tp: bytes, memory and step time, with closed forms");
  c.app = app;
  app->add_option(
         "--strategy", c.strategies,
         fmt::format("separated by commas: {}, or all", fmt::join(sharded_strategies(), ", ")))
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--ranks", c.options.ranks, "numbers of ranks, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  add_train_options(*app, c.options.train,
                    {"model", "sequence-length", "dtype", "recompute", "steps", "data"});
  app->add_option("--micro-batch-size", c.options.micro_batch_size,
                  "sequences per rank; every strategy has the same global batch")
      ->capture_default_str();
  app->add_option("--clock", c.clock,
                  "clock of the training runs: cpu (virtual time) or wall (real time)")
      ->capture_default_str();
  app->add_option("--link", c.links,
                  "link between ranks: presets, separated by commas, or alpha=TIME,beta=BANDWIDTH; "
                  "repeatable; default: 1 GB/s, with --simulate ten from 1 to 900 GB/s");
  app->add_flag("--simulate", c.simulates,
                "do not train: simulate ranks with the rates below, in virtual time");
  app->add_option("--tflops", c.teraflops, "arithmetic rate of a rank, TFLOP/s")
      ->capture_default_str();
  app->add_option("--memory-bandwidth", c.gigabytes, "memory bandwidth of a rank, GB/s")
      ->capture_default_str();
  app->add_option("--device", c.device,
                  "host; none: only count bytes and memory of rank 0, for up to 16384 ranks")
      ->capture_default_str();
  app->add_option("--json", c.json, "write the results to this file, as Google Benchmark does");
  c.formats.add(*app);
  app->add_option("--plot", c.plot, "plot the results to this file: .svg, .png or .pdf");
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace lockstep
