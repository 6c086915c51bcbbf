#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "bench/results/train_json.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/share.h"
#include "cli/train_options.h"
#include "cli/world_flags.h"
#include "collectives/base/cuda_module.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/trace.h"
#include "models/kernels_info.h"
#include "models/weights.h"
#include "parallel/plan.h"
#include "parallel/trainer.h"

namespace lockstep {
namespace {

void print_bubble(const BubbleRecord& bubble) {
  if (bubble.expected_fraction)
    fmt::print("bubble: closed form {:.2f} %, ", 100 * *bubble.expected_fraction);
  else
    fmt::print("bubble: ");
  fmt::print(
      "simulated with mean pass times {:.2f} %, replayed with each pass's time {:.2f} %, "
      "measured {:.2f} %\n",
      100 * bubble.simulated_fraction, 100 * bubble.replayed_fraction, 100 * bubble.fraction);
}

struct TrainCommand {
  PlanOptions plan;
  WorldFlags world;
  CLI::Option* ranks = nullptr;
  std::string device = "host", json, trace;
};

void print_staleness(const std::vector<UpdateRecord>& updates) {
  int lead = 0, delays = 0;
  for (const UpdateRecord& update : updates) {
    lead = std::max(lead, update.lead);
    delays += update.delay;
  }
  fmt::print(
      "at most {} steps ahead of the slowest worker; an update misses {:.2f} others on average\n",
      lead, static_cast<double>(delays) / static_cast<double>(updates.size()));
}

bool is_same(const TheoryRecord& a, const TheoryRecord& b) {
  return a.quantity == b.quantity && a.formula == b.formula && a.expected == b.expected &&
         a.measured == b.measured;
}

// Sorted by quantity. Consecutive ranks with the same numbers share one line.
void print_theory(std::vector<TheoryRecord> theory) {
  fmt::print("{:<36} {:>7} {:>16} {:>16}  {}\n", "quantity", "ranks", "expected", "measured",
             "closed form");
  std::vector<std::string> quantities;
  for (const TheoryRecord& t : theory)
    if (std::ranges::count(quantities, t.quantity) == 0) quantities.push_back(t.quantity);
  std::ranges::stable_sort(theory, {}, [&](const TheoryRecord& t) {
    return std::pair(std::ranges::find(quantities, t.quantity) - quantities.begin(), t.rank);
  });
  for (std::size_t first = 0, last = 0; first < theory.size(); first = last + 1) {
    const TheoryRecord& t = theory[first];
    for (last = first; last + 1 < theory.size() && is_same(theory[last + 1], t) &&
                       theory[last + 1].rank == theory[last].rank + 1;)
      ++last;
    const std::string ranks =
        first == last ? fmt::format("{}", t.rank) : fmt::format("{}-{}", t.rank, theory[last].rank);
    fmt::print("{:<36} {:>7} {:>16.0f} {:>16.0f}  {}{}\n", t.quantity, ranks, t.expected,
               t.measured, t.formula, t.expected == t.measured ? "" : "  DIFFERS");
  }
}

void print_summary(const TrainCommand& c, const Plan& plan, const TrainResult& result) {
  const StepRecord &first = result.steps.front(), &last = result.steps.back();
  double seconds = 0;
  for (const StepRecord& step : result.steps) seconds += step.seconds;
  fmt::print("{}: {} rank{} over {}, {} parameters, {} steps of {} tokens\n", plan.technique(),
             result.world_size, result.world_size == 1 ? "" : "s", result.transport,
             result.parameters, result.steps.size(), result.tokens_per_step);
  if (result.bubble) print_bubble(*result.bubble);
  if (!result.updates.empty()) print_staleness(result.updates);
  if (plan.options.dtype == DType::bf16) fmt::print("products of bf16: {}\n", bf16_gemm_library());
  fmt::print("loss {:.4f} -> {:.4f}", first.loss, last.loss);
  if (!result.validation.empty()) fmt::print("   validation {:.4f}", result.validation.back().loss);
  fmt::print("   (unigram entropy of the data {:.4f})\n", result.unigram_entropy);
  const auto tokens =
      static_cast<double>(result.tokens_per_step) * static_cast<double>(result.steps.size());
  if (c.world.launch.clock == Clock::unit)
    fmt::print("{:g} units of time per step\n\n",
               seconds / static_cast<double>(result.steps.size()));
  else
    fmt::print("{:.0f} tokens/s{}\n\n", tokens / seconds,
               c.world.launch.clock == Clock::cpu ? " of virtual time" : "");
  print_theory(result.theory);
  for (const LostRank& lost : result.lost)
    fmt::print("\nrank {} was lost in step {}: {}; the others continued\n", lost.rank, lost.step,
               lost.why);
  if (!result.sample.empty()) fmt::print("\n{}\n", result.sample);
}

// Sets the options that depend on the clock.
void adapt_to_clock(TrainOptions& options, const LaunchOptions& world) {
  if (world.clock != Clock::wall) {
    require(options.threads <= 1,
            fmt::format("--threads {} with the clock {}", options.threads, name_of(world.clock)),
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

int run(TrainCommand& c) {
  c.world.read();
  LaunchOptions& world = c.world.launch;
  const auto planned = take_plan_file(c.plan, c.ranks->count() > 0 ? &world.ranks : nullptr);
  if (planned) world.ranks = *planned;
  require(c.device != "none", "--device none", "training needs data; choose host or cuda");
  world.device = &device_named(c.device);
  world.trace = !c.trace.empty();
  TrainOptions& options = c.plan.options;
  adapt_to_clock(options, world);
  if (options.data.empty()) options.data = default_text();
  const Plan plan = plan_of(options, launch_ranks(world));
  require(
      !planned || plan.ranks == *planned,
      fmt::format("{} ranks, and {} says {}", plan.ranks, c.plan.plan_file, planned.value_or(0)),
      "start as many ranks as the plan has");
  check_outputs({c.json, c.trace, options.save}, {options.data, c.plan.plan_file});
  if (!options.save.empty()) check_weights_output(options.save, plan.model);

  TrainResult result;
  {
    Progress progress(options.steps);
    launch(world, [&](RankContext& context) {
      TrainResult mine = train(context, plan, [&](const StepRecord& step) { progress.show(step); });
      if (context.world.rank() == 0) result = std::move(mine);
    });
  }
  if (result.ranks.empty()) return 0;  // under mpirun rank 0 reports
  print_summary(c, plan, result);
  if (!c.json.empty()) write_file(c.json, train_json(plan, world, result));
  if (!c.trace.empty()) write_file(c.trace, trace_file(result.trace_events));
  if (!theory_holds(result))
    throw Error(
        ErrorKind::wrong_result, "a measured quantity differs from its closed form",
        {.hint = "see the lines marked DIFFERS; this is a bug in the technique or in its theory"});
  return 0;
}

void add_run_flags(CLI::App& app, TrainCommand& c) {
  c.world.add(app);
  c.ranks = app.get_option("--ranks");
  app.add_option(
         "--device", c.device,
         "host, or cuda: one GPU for each rank, over NCCL, if there are enough, otherwise one "
         "GPU for all")
      ->capture_default_str();
  app.add_option("--json", c.json, "write the result to this file");
  app.add_option("--trace", c.trace, "write a trace for ui.perfetto.dev to this file");
}

}  // namespace

void add_train(CLI::App& program, Command& chosen) {
  CLI::App* train = program.add_subcommand("train", "train a mini-GPT with one technique");
  train->require_subcommand(1);
  train->fallthrough();
  for (const TechniqueEntry& entry : techniques()) {
    auto command = std::make_shared<TrainCommand>();
    CLI::App* app = train->add_subcommand(std::string(entry.name), std::string(entry.summary));
    command->plan.options.technique = entry.name;
    add_run_flags(*app, *command);
    add_plan_options(*app, command->plan);
    app->fallthrough();
    app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
  }
}

}  // namespace lockstep
