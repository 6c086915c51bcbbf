// lockstep bench pipeline: compares pipeline schedules.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "bench/techniques/pipeline.h"
#include "cli/command.h"
#include "cli/pass_time_flags.h"
#include "cli/result_file.h"
#include "cli/result_formats.h"
#include "cli/share.h"
#include "cli/train_options.h"
#include "cli/world_flags.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/gpt/gpt_stage.h"

namespace lockstep {
namespace {

struct PipelineCommand {
  PipelineBenchOptions options;
  WorldFlags world;
  PassTimeFlags passes;
  std::vector<std::string> schedules = {"all"};
  std::string json, plot;
  ResultFormats formats;
  std::vector<const CLI::Option*> of_training, of_simulation;
};

// A simulation takes shapes and the times of passes; training measures those times. Refuses flags
// of the other mode, which would have no effect.
void check_mode(const PipelineCommand& c) {
  const bool simulates = c.options.only_simulates;
  for (const CLI::Option* option : simulates ? c.of_training : c.of_simulation)
    require(option->count() == 0,
            fmt::format("{} {} --simulate", option->get_name(), simulates ? "with" : "without"),
            simulates ? "nothing is trained, and messages take the time --hop: omit one of the two"
                      : "training measures these times: omit it, or add --simulate");
}

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
  check_mode(c);
  c.options.times = c.passes.times();
  c.formats.check({c.json, c.plot});
  c.options.train.threads = c.world.launch.clock == Clock::wall ? 0 : 1;
  if (c.options.train.data.empty() && !c.options.only_simulates)
    c.options.train.data = default_text();
  c.options.schedules = expanded_schedules(c.schedules);
  const std::vector<PipelinePoint> points = bench_pipeline(c.options, c.world.launch);
  require(std::ranges::any_of(points, [](const PipelinePoint& p) { return p.skipped.empty(); }),
          "no schedule supports any of these shapes", "see the reasons above");
  const std::string result = pipeline_json(points, c.options, c.world.launch);
  ResultFile file(c.json, result);
  c.formats.write(result);
  return file.plot("pipeline", c.plot);
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
  // Adds flags with `add` and notes which ones they are.
  const auto added = [app](std::vector<const CLI::Option*>& flags, const auto& add) {
    const std::size_t before = app->get_options().size();
    add();
    const std::vector<CLI::Option*> all = app->get_options();
    flags.insert(flags.end(), all.begin() + static_cast<std::ptrdiff_t>(before), all.end());
  };
  added(c.of_training, [&] {
    c.world.add(*app);
    app->remove_option(app->get_option("--ranks"));
    add_train_options(*app, c.options.train,
                      {"model", "sequence-length", "steps", "recompute", "data"});
    app->add_option("--micro-batch-size", c.options.micro_batch_size, "sequences per micro-batch")
        ->capture_default_str();
  });
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
                "only simulate, with the times below, for any number of ranks");
  added(c.of_simulation, [&] { c.passes.add(*app); });
  app->add_option("--json", c.json, "write the results to this file, as Google Benchmark does");
  c.formats.add(*app);
  app->add_option("--plot", c.plot, "plot the results to this file: .svg, .png or .pdf");
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace lockstep
