#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/results/measure.h"
#include "bench/results/train_json.h"
#include "cli/command.h"
#include "cli/dry_run.h"
#include "cli/help.h"
#include "cli/progress.h"
#include "cli/result_formats.h"
#include "cli/share.h"
#include "cli/theory_table.h"
#include "cli/train_options.h"
#include "cli/train_summary.h"
#include "cli/world_flags.h"
#include "collectives/base/cuda_module.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/limits.h"
#include "collectives/base/trace.h"
#include "models/data/token_files.h"
#include "models/gpt/weights.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/plan_claims.h"
#include "parallel/predict/needed_bytes.h"
#include "parallel/train/save_adapters.h"
#include "parallel/train/trainer.h"

namespace lockstep {
namespace {

struct TrainCommand {
  PlanOptions plan;
  WorldFlags world;
  std::string device = "host", json, trace;
  ResultFormats formats;
  DryRunFlags dry;
};

// Sets the options that depend on the clock.
void adapt_to_clock(TrainOptions& options, const LaunchOptions& world) {
  if (world.clock != Clock::wall) {
    require(options.threads <= 1,
            fmt::format("--threads {} cannot be combined with --clock {}", options.threads,
                        name_of(world.clock)),
            "a rank computes with one thread under a virtual clock");
    options.threads = 1;
  }
  require(options.compute_seconds == 0 || world.clock == Clock::unit,
          fmt::format("--compute-time with the clock {}", name_of(world.clock)),
          "other clocks measure the time; add --clock unit");
  // Forward of a micro-batch through all of a rank's stages takes one unit, backward two.
  if (world.clock == Clock::unit && options.compute_seconds == 0 &&
      technique(options.technique).has_pipeline)
    options.compute_seconds = 3.0 * options.micro_batches;
}

// Refuses what this machine cannot run, before anything is allocated.
void check_machine(const Plan& plan, const LaunchOptions& world) {
  const bool is_one_process = launch_ranks({.ranks = 0}) == 0;
  const int ranks = is_one_process ? plan.ranks : 1;
  if (world.clock == Clock::wall)
    require_threads(static_cast<double>(ranks) * std::max(1, plan.options.threads),
                    fmt::format("training on {} rank{}", ranks, ranks == 1 ? "" : "s"),
                    "use fewer --ranks or --threads");
  const bool offloads = (plan.options.offload != "none" && plan.zero_stage() > 0) ||
                        plan.stage_options().kept_input == KeptInput::offloaded;
  require(world.device->enqueues() || !offloads || plan.options.offload_to != "memory",
          "--offload-to memory does nothing here: the ranks already compute in the host's memory",
          "name a file: --offload-to FILE; or train on a GPU, with --device cuda");
  if (!world.device->enqueues())
    require_memory(needed_bytes(plan, is_one_process), "this training",
                   "use a smaller --model, --global-batch or --sequence-length, or more "
                   "--micro-batches; lockstep plan shows what each rank holds");
}

// The result on rank 0; empty on other ranks.
TrainResult launch_training(const Plan& plan, const LaunchOptions& world) {
  const int steps = plan.options.steps;
  TrainResult result;
  int taken = 0;
  Progress progress(steps);
  try {
    launch(world, [&](RankContext& context) {
      TrainResult mine = train(context, plan, [&](const StepRecord& step) {
        progress.show(step);
        taken = step.step + 1;
      });
      if (context.world.rank() == 0) result = std::move(mine);
    });
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::interrupted || taken == 0) throw;
    throw Error(error.kind(),
                fmt::format("after {} of {} steps: {}", taken, steps, error.message()),
                error.context());
  }
  return result;
}

// The plan's values are compared instead of the flags' texts: "1e-3" is 0.001.
Claims claims_of(const TrainCommand& c, const Plan& plan) {
  Claims claims = claims_of(plan);
  const Claims others = c.world.claims([&](const CLI::Option& option) {
    return option.get_single_name() == "plan" ||
           std::ranges::any_of(c.plan.given,
                               [&](const auto& each) { return each.second == &option; });
  });
  claims.insert(claims.end(), others.begin(), others.end());
  return claims;
}

// With the options of the run, from which plots take its name.
std::string trace_of_run(const TrainResult& result, const std::string& json) {
  const nlohmann::ordered_json about = {
      {"config", nlohmann::ordered_json::parse(json).at("config")}};
  return "{\"otherData\":" + json_line(about) + "," + trace_file(result.trace_events).substr(1);
}

int run(TrainCommand& c) {
  c.world.read();
  LaunchOptions& world = c.world.launch;
  const std::optional<int> given = c.world.given_ranks();
  const auto planned = take_plan_file(c.plan, given);
  take_model_of_init(c.plan);
  if (planned) world.ranks = *planned;
  if (!planned && !given) world.ranks = default_ranks(c.plan.options);
  world.device = &device_named(c.device);
  c.dry.check(c.plan, c.device);
  for (const auto& [flag, file] : {std::pair("--csv", c.formats.csv),
                                   {"--junit", c.formats.junit},
                                   {"--prometheus", c.formats.prometheus},
                                   {"--archive", c.formats.archive}})
    require(file.empty() || c.device != "none", fmt::format("{} with --device none", flag),
            fmt::format("a dry run has no steps: use --json, or omit {}", flag));
  if (c.device == "none") return dry_run_alone(c.plan, world, c.dry.rank, c.json);
  world.trace = !c.trace.empty();
  world.failed_trace = c.trace;
  TrainOptions& options = c.plan.options;
  adapt_to_clock(options, world);
  if (options.data.empty()) options.data = default_text();
  const Plan plan = plan_of(options, launch_ranks(world));
  require(
      !planned || plan.ranks == *planned,
      fmt::format("{} ranks, and {} says {}", plan.ranks, c.plan.plan_file, planned.value_or(0)),
      "start as many ranks as the plan has");
  refuse_without_effect(c.plan, plan.options);
  std::vector<std::string> inputs = data_paths(options.data);
  inputs.push_back(c.plan.plan_file);
  c.formats.check({c.json, c.trace, options.save}, inputs);
  if (!options.save.empty()) check_weights_output(options.save, plan.model);
  if (!options.save_adapters.empty()) check_adapters_output(options.save_adapters);
  check_machine(plan, world);
  world.claims = claims_of(c, plan);
  TrainResult result;
  c.formats.keep_failure([&] { result = launch_training(plan, world); });
  if (result.ranks.empty()) return 0;  // under mpirun rank 0 reports
  print_summary(plan, c.world.launch, result);
  const std::string json = train_json(plan, world, result);
  if (!c.json.empty()) write_file(c.json, json);
  c.formats.write(json);
  if (!c.trace.empty()) write_file(c.trace, trace_of_run(result, json));
  require_theory_holds(result);
  return 0;
}

void add_run_flags(CLI::App& app, TrainCommand& c) {
  c.world.add(app);
  app.add_option(
         "--device", c.device,
         "host; cuda: one GPU for each rank, over NCCL, if there are enough, otherwise one GPU for "
         "all; or none: a dry run of one rank, which counts bytes and messages without data")
      ->capture_default_str()
      ->group(std::string(ranks_group));
  c.dry.add(app);
  const std::string files(files_group);
  app.add_option("--json", c.json, "write the result to this file")->group(files);
  c.formats.add(app);
  app.add_option("--trace", c.trace, trace_help)->group(files);
}

}  // namespace

void add_train(CLI::App& program, Command& chosen) {
  CLI::App* train = program.add_subcommand("train", "train a mini-GPT with one technique");
  train->require_subcommand(1);
  train->fallthrough();
  when_chosen(*train, [train, &chosen] {
    for (const TechniqueEntry& entry : techniques()) {
      CLI::App* app = train->add_subcommand(std::string(entry.name), std::string(entry.summary));
      app->fallthrough();
      when_chosen(*app, [app, &entry, &chosen] {
        auto command = std::make_shared<TrainCommand>();
        command->plan.options = default_options(entry.name);
        command->world.launch.ranks = entry.default_ranks();
        add_plan_options(*app, command->plan);
        add_run_flags(*app, *command);
        app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
      });
    }
    add_train_examples(*train);
  });
}

}  // namespace lockstep
