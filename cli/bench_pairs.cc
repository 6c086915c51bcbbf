// lockstep bench pairs: measures all links between ranks, and names slow ones.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/pairs/pairs.h"
#include "cli/bench_command.h"
#include "cli/command.h"
#include "cli/result_file.h"
#include "cli/result_formats.h"
#include "collectives/base/cuda_module.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/limits.h"

namespace lockstep {
namespace {

struct PairsCommand {
  PairsOptions options;
  WorldFlags world{.launch = {.ranks = 2}};
  std::string small = "8", large = "1M", device = "host", json, plot;
  std::vector<std::string> slow_links;
  ResultFormats formats;
  std::optional<int> iterations, warmup;  // not given: chosen by the clock
};

void read_slow_links(PairsCommand& c) {
  LaunchOptions& world = c.world.launch;
  for (const std::string& text : c.slow_links) {
    require(world.clock != Clock::wall, fmt::format("--slow-link {} with the clock wall", text),
            "it slows virtual links only: use --clock unit or cpu");
    world.slow_links.push_back(given_slowdown(text, world.ranks));
  }
}

void read(PairsCommand& c) {
  c.world.read();
  read_slow_links(c);
  c.world.launch.claims = c.world.claims();
  PairsOptions& o = c.options;
  o.small_bytes = given_bytes(c.small, "-b");
  o.large_bytes = given_bytes(c.large, "-e");
  const bool unit = c.world.launch.clock == Clock::unit;
  require(c.device == "host" || c.world.launch.clock == Clock::wall,
          fmt::format("--device {} with --clock {}", c.device, name_of(c.world.launch.clock)),
          "links between GPUs are measured in real time: omit --clock");
  require(c.device != "none", "--device none", "choose host or cuda");
  // There every iteration takes the same time, and no data are needed.
  o.iterations = c.iterations.value_or(unit ? 1 : 10);
  o.warmup = c.warmup.value_or(unit ? 0 : 1);
  o.device = unit ? &none_device() : &device_named(c.device);
  c.world.launch.device = o.device;
  const int ranks = launch_ranks(c.world.launch);
  check(o, ranks);
  // Under mpirun this process is one rank.
  const double here = launch_ranks({.ranks = 0}) > 0 ? 1 : ranks;
  if (c.world.launch.clock == Clock::wall)
    require_threads(here, fmt::format("a benchmark on {} ranks", ranks), "use fewer ranks");
  if (o.device->stores() && !o.device->enqueues())
    require_memory(2 * here * static_cast<double>(o.large_bytes),
                   fmt::format("-e {} on {} ranks", c.large, ranks), "use a smaller -e");
}

int run(PairsCommand& c) {
  read(c);
  c.formats.check({c.json, c.plot});
  check_plot(c.plot);
  PairsRun measured;
  c.formats.keep_failure([&] {
    launch(c.world.launch, [&](RankContext& context) {
      PairsRun mine = measure_pairs(context, c.options, c.world.launch);
      if (context.world.rank() == 0) measured = std::move(mine);
    });
  });
  if (measured.links.empty()) return 0;  // under mpirun only rank 0 has them
  fmt::print("{}", table_of(measured, c.options, c.world.launch));
  if (c.json.empty() && c.plot.empty() && !c.formats.any()) return 0;
  const std::string result = pairs_json(measured, c.options, c.world.launch);
  ResultFile file(c.json, result);
  c.formats.write(result);
  return file.plot("pairs", c.plot);
}

void add_flags(CLI::App& app, PairsCommand& c) {
  const std::string measuring = "measuring", files(files_group);
  PairsOptions& o = c.options;
  app.add_option(
         "--rounds", o.rounds,
         "measure only so many rounds of disjoint links, evenly chosen: in each, every host "
         "meets another one; 3 suffice to find a slow host")
      ->default_str("all pairs")
      ->group(measuring);
  app.add_option("-b,--small", c.small, "bytes of the messages for latency and message rate")
      ->capture_default_str()
      ->group(measuring);
  app.add_option("-e,--large", c.large, "bytes of the messages for bandwidth")
      ->capture_default_str()
      ->group(measuring);
  app.add_option("--device", c.device,
                 "host; or cuda: between GPUs, over NCCL if there is one for each rank")
      ->capture_default_str()
      ->group(measuring);
  app.add_option("--slow-link", c.slow_links,
                 "RANK:FACTOR or RANK-RANK:FACTOR: with --clock unit or cpu, plant a slow link, on "
                 "which a byte takes FACTOR times as long: the rank's own link, or the cable "
                 "between two ranks; repeatable")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->group(measuring);
  app.add_option("--window", o.window, "large messages that a rank sends at once")
      ->capture_default_str()
      ->group(measuring);
  app.add_option("-n,--iters", c.iterations, "samples of each link, spread over the whole run")
      ->default_str("10, with --clock unit 1")
      ->group(measuring);
  app.add_option("-w,--warmup_iters", c.warmup, "warm-up iterations, not timed")
      ->default_str("1, with --clock unit 0")
      ->group(measuring);
  app.add_option("--effect", o.effect,
                 "a link is slow if it takes longer than links of its class by this share at least")
      ->capture_default_str()
      ->group(measuring);
  app.add_option("-J,--json", c.json, "write the results to this file, as Google Benchmark does")
      ->group(files);
  app.add_option("--plot", c.plot, "plot the results to this file: .svg, .png or .pdf")
      ->group(files);
  c.formats.add(app);
}

}  // namespace

void add_bench_pairs(CLI::App& bench, Command& chosen) {
  CLI::App* app = bench.add_subcommand(
      "pairs",
      "the links between all pairs of ranks: latency, bandwidth, slow hosts and cables; bisection, "
      "incast, message rate, overlap");
  app->fallthrough();
  when_chosen(*app, [app, &chosen] {
    auto command = std::make_shared<PairsCommand>();
    add_flags(*app, *command);
    command->world.add(*app);
    app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
  });
}

}  // namespace lockstep
