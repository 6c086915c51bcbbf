// lockstep bench pipeline: compares pipeline schedules.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "bench/techniques/pipeline.h"
#include "cli/command.h"
#include "cli/result_file.h"
#include "cli/share.h"
#include "cli/train_options.h"
#include "cli/world_flags.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/gpt_stage.h"

namespace lockstep {
namespace {

struct PipelineCommand {
  PipelineBenchOptions options;
  WorldFlags world;
  std::vector<std::string> schedules = {"all"};
  std::string json, plot;
};

int run(PipelineCommand& c) {
  c.world.read();
  require(launch_ranks({}) == 1, "bench pipeline under mpirun or srun",
          "run it without: it starts the ranks of each point itself");
  for (const auto& [values, flag] : {std::pair{&c.options.ranks, "--ranks"},
                                     {&c.options.micro_batches, "--micro-batches"},
                                     {&c.options.virtual_stages, "--virtual-stages"}})
    for (const int value : *values)
      require(value >= 1, fmt::format("{} {}", flag, value), "use numbers from 1");
  require(c.options.micro_batch_size >= 1,
          fmt::format("--micro-batch-size {}", c.options.micro_batch_size), "use 1 or more");
  recompute_from_name(c.options.train.recompute);
  check_outputs({c.json, c.plot});
  c.options.train.threads = c.world.launch.clock == Clock::wall ? 0 : 1;
  if (c.options.train.data.empty()) c.options.train.data = default_text();
  c.options.schedules.clear();
  for (const std::string& name : c.schedules) {
    if (name != "all") find_schedule(name);
    for (const ScheduleEntry& entry : schedules())
      if (name == "all" || name == entry.name) c.options.schedules.emplace_back(entry.name);
  }
  const std::vector<PipelinePoint> points = bench_pipeline(c.options, c.world.launch);
  require(std::ranges::any_of(points, [](const PipelinePoint& p) { return p.skipped.empty(); }),
          "no schedule supports any of these shapes", "see the reasons above");
  return ResultFile(c.json, pipeline_json(points, c.world.launch)).plot("pipeline", c.plot);
}

}  // namespace

void add_bench_pipeline(CLI::App& bench, Command& chosen) {
  auto command = std::make_shared<PipelineCommand>();
  PipelineCommand& c = *command;
  c.world.clock = "cpu";
  CLI::App* app = bench.add_subcommand(
      "pipeline", "compare pipeline schedules: bubble, memory and speed, simulated and trained");
  app->add_option("--schedule", c.schedules, "names separated by commas, or all")
      ->delimiter(',')
      ->capture_default_str();
  c.world.add(*app);
  app->remove_option(app->get_option("--ranks"));
  app->add_option("-p,--ranks", c.options.ranks, "numbers of ranks, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("-m,--micro-batches", c.options.micro_batches,
                  "numbers of micro-batches, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option(
         "-v,--virtual-stages,--chunks", c.options.virtual_stages,
         "virtual stages of each rank, for schedules that leave it open; separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  app->add_flag("--simulate", c.options.only_simulates,
                "only simulate, with equal passes, for any number of ranks");
  add_train_options(*app, c.options.train,
                    {"model", "sequence-length", "steps", "recompute", "data"});
  app->add_option("--micro-batch-size", c.options.micro_batch_size, "sequences per micro-batch")
      ->capture_default_str();
  app->add_option("--json", c.json, "write the results to this file, as Google Benchmark does");
  app->add_option("--plot", c.plot, "plot the results to this file: .svg, .png or .pdf");
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace lockstep
