// lockstep bench 3d: compares the factorings of a number of ranks along the axes of a mesh.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "bench/techniques/factorings.h"
#include "cli/bench_command.h"
#include "cli/bench_engines.h"
#include "cli/command.h"
#include "cli/result_file.h"
#include "cli/result_formats.h"
#include "cli/train_options.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/transport/failure/later_interruption.h"
#include "parallel/pipeline/schedules/schedules.h"

namespace lockstep {
namespace {

struct FactoringCommand {
  FactoringBenchOptions options;
  EngineFlags engines;
  std::string memory_limit, json, plot;
  ResultFormats formats;
  double teraflops = 400, gigabytes = 3000;
  double exposed_limit = 0;
  bool products_only = false;
  CLI::App* app = nullptr;
};

void within(const std::vector<int>& values, int least, int most, const char* flag) {
  for (const int value : values)
    require(value >= least && value <= most, fmt::format("{} {}", flag, value),
            fmt::format("use {} to {}", least, most));
}

void read(FactoringCommand& c) {
  FactoringBenchOptions& o = c.options;
  require(!o.ranks.empty(), "--ranks without a number", "use 1 to 16384");
  within(o.ranks, 1, 16384, "--ranks");
  within({o.micro_batch_size}, 1, 1024, "--micro-batch-size");
  within({o.train.global_batch}, 0, 1 << 24, "--global-batch");
  for (const auto& [lengths, flag] : {std::pair{&o.tensor, "--tp"},
                                      {&o.context, "--cp"},
                                      {&o.pipeline, "--pp"},
                                      {&o.data, "--dp"}})
    within(*lengths, 1, *std::ranges::max_element(o.ranks), flag);
  for (const double rate : {c.teraflops, c.gigabytes})
    require(rate > 0 && std::isfinite(rate), fmt::format("invalid rate {}", rate),
            "--tflops and --memory-bandwidth must be above 0");
  o.roofline = {.flops_per_s = c.teraflops * 1e12, .bytes_per_s = c.gigabytes * 1e9};
  if (c.products_only) {
    require(c.app->count("--memory-bandwidth") == 0, "--memory-bandwidth with --products-only",
            "products take the time of their arithmetic alone there: omit one of them");
    o.roofline.bytes_per_s = std::numeric_limits<double>::infinity();
    o.roofline.timed = Roofline::Timed::products;
  }
  if (c.app->count("--exposed-limit") > 0) {
    require(c.exposed_limit >= 0 && std::isfinite(c.exposed_limit),
            fmt::format("--exposed-limit {}", c.exposed_limit), "use 0 or more");
    o.exposed_limit = c.exposed_limit;
  }
  given_links(o.link);
  find_schedule(o.train.schedule);  // refuses an unknown schedule for all factorings at once
  if (!c.memory_limit.empty()) o.memory_limit = given_bytes(c.memory_limit, "--memory-limit");
}

// Flags of one of the two modes.
void check_mode(const FactoringCommand& c) {
  const bool simulates = c.engines.profile.empty();
  for (const char* flag : {"--clock", "--steps"})
    require(!simulates || c.app->count(flag) == 0, fmt::format("{} without --profile", flag),
            "ideal ranks have the clock unit, and take one step: add --profile FILE");
  for (const char* flag : {"--tflops", "--memory-bandwidth", "--products-only", "--per-block",
                           "--exposed-limit", "--memory-limit", "--plot"})
    require(simulates || c.app->count(flag) == 0, fmt::format("{} with --profile", flag),
            "it is of ideal ranks, and a profile of this machine: omit one of the two");
  require(simulates || c.engines.clock != "wall" || c.app->count("--link") == 0,
          "--link with the clock wall",
          "the profile has the times of real messages; use --clock cpu");
}

int run(FactoringCommand& c) {
  require(launch_ranks({}) == 1, "bench 3d under mpirun or srun",
          "run it without: it simulates all ranks in one process");
  check_mode(c);
  read(c);
  c.formats.check({c.json, c.plot});
  if (!c.engines.profile.empty()) {
    const std::string compared = c.engines.compare(c.options);
    const ResultFile written(c.json, compared);
    c.formats.write(compared);
    return 0;
  }
  check_plot(c.plot);
  const LaterInterruption later;
  std::optional<Error> interruption;
  const std::vector<Factoring> factorings = bench_factorings(c.options, &interruption);
  const auto refused = std::ranges::count_if(
      factorings, [](const Factoring& factoring) { return !factoring.refused.empty(); });
  if (interruption && refused == std::ssize(factorings)) throw Error(*interruption);
  require(factorings.front().refused.empty(), "no factoring has a plan",
          fmt::format("{}: {}", factorings.front().name(), factorings.front().refused));
  print_factorings(factorings, c.options);
  const std::string result = factorings_json(factorings, c.options);
  ResultFile file(c.json, result);
  c.formats.write(result);
  if (!interruption) return file.plot("factorings", c.plot);
  throw Error(
      interruption->kind(),
      fmt::format("after {} of {} factorings", std::ssize(factorings) - refused, factorings.size()),
      {.hint = "the others are listed as refused"});
}

}  // namespace

void add_bench_factorings(CLI::App& bench, Command& chosen) {
  auto command = std::make_shared<FactoringCommand>();
  FactoringCommand& c = *command;
  FactoringBenchOptions& o = c.options;
  CLI::App* app = bench.add_subcommand(
      "3d",
      "the ways to arrange ranks along tp, cp, pp and dp, simulated: step time, exposed "
      "communication, bubble and memory");
  c.app = app;
  app->add_option("--ranks", o.ranks,
                  "numbers of ranks, separated by commas; all their factorings are compared")
      ->delimiter(',')
      ->capture_default_str();
  for (const auto& [flag, lengths, what, limited] :
       {std::tuple{"--tp", &o.tensor, "ranks that split every layer", true},
        {"--cp", &o.context, "ranks that share every sequence", true},
        {"--pp", &o.pipeline, "ranks of a pipeline", false},
        {"--dp", &o.data, "replicas", false}})
    app->add_option(flag, *lengths,
                    fmt::format("only these numbers of {}, separated by commas{}", what,
                                limited ? "; default: those that fit into a node" : ""))
        ->delimiter(',');
  add_train_options(
      *app, o.train,
      {"model", "sequence-length", "dtype", "recompute", "zero", "schedule", "virtual-stages",
       "sequence-parallel", "tp-overlap", "overlap", "forward-prefetch", "mesh-order"});
  app->add_option("--global-batch", o.train.global_batch, "sequences per step; 0: one per rank")
      ->capture_default_str();
  app->add_option("--micro-batch-size", o.micro_batch_size, "sequences of a micro-batch")
      ->capture_default_str();
  app->add_option("--link", o.link,
                  "link between ranks: a preset, or alpha=TIME,beta=BANDWIDTH, and for nodes "
                  "node=RANKS,node-alpha=TIME,node-beta=BANDWIDTH")
      ->capture_default_str();
  app->add_option(
      "--memory-limit", c.memory_limit,
      "memory limit of each rank, such as 80G; K, M and G are powers of 1024; default: no limit");
  app->add_option("--tflops", c.teraflops, "arithmetic rate of a rank, TFLOP/s")
      ->capture_default_str();
  app->add_option("--memory-bandwidth", c.gigabytes, "memory bandwidth of a rank, GB/s")
      ->capture_default_str();
  app->add_flag("--products-only", c.products_only,
                "only products of matrices take time, as in closed forms of papers");
  app->add_flag("--per-block", o.per_block,
                "show the time that one more block of each stage adds to a step");
  app->add_option("--exposed-limit", c.exposed_limit,
                  "also find the most ranks whose exposed communication takes at most this many "
                  "times as long as computing; 0: it is all hidden");
  app->add_option("--json", c.json, "write the results to this file, as Google Benchmark does");
  c.engines.add(*app);
  c.formats.add(*app);
  app->add_option("--plot", c.plot, "plot the results to this file: .svg, .png or .pdf");
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace lockstep
