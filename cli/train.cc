#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "bench/train_json.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/share.h"
#include "cli/train_options.h"
#include "collectives/base/cuda_module.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/trace.h"
#include "models/kernels_info.h"
#include "parallel/technique.h"
#include "parallel/trainer.h"

namespace lockstep {
namespace {

void print_bubble(const BubbleRecord& bubble) {
  if (bubble.expected_fraction)
    fmt::print("bubble: closed form {:.2f} %, ", 100 * *bubble.expected_fraction);
  else
    fmt::print("bubble: ");
  fmt::print(
      "simulated with mean times of its passes {:.2f} %, with the time of each {:.2f} %, "
      "measured {:.2f} %\n",
      100 * bubble.simulated_fraction, 100 * bubble.replayed_fraction, 100 * bubble.fraction);
}

// R:FACTOR
std::pair<int, double> parse_slow_rank(const std::string& text) {
  const std::size_t colon = text.find(':');
  try {
    std::size_t rank_end = 0, factor_end = 0;
    const int rank = std::stoi(text, &rank_end);
    const double factor = std::stod(text.substr(colon + 1), &factor_end);
    if (rank_end == colon && colon + 1 + factor_end == text.size()) return {rank, factor};
  } catch (const std::logic_error&) {
    // Not a number: the same error as for one with something behind it.
  }
  throw Error(ErrorKind::bad_input, fmt::format("--slow-rank {}", text),
              {.hint = "write RANK:FACTOR, for example 1:2.5"});
}

void check_outputs(const TrainCommand& c) {
  for (const std::string& path : {c.json, c.trace, c.options.save})
    if (!path.empty()) check_writable(path);
}

void print_staleness(const std::vector<UpdateRecord>& updates) {
  int lead = 0, delays = 0;
  for (const UpdateRecord& update : updates) {
    lead = std::max(lead, update.lead);
    delays += update.delay;
  }
  fmt::print(
      "at most {} steps ahead of the slowest; {:.2f} updates by others not seen, on average\n",
      lead, static_cast<double>(delays) / static_cast<double>(updates.size()));
}

void print_summary(const TrainCommand& c, const TrainResult& result) {
  const StepRecord &first = result.steps.front(), &last = result.steps.back();
  double seconds = 0;
  for (const StepRecord& step : result.steps) seconds += step.seconds;
  fmt::print("{}: {} rank{} over {}, {} parameters, {} steps of {} tokens\n", c.options.technique,
             result.world_size, result.world_size == 1 ? "" : "s", result.transport,
             result.parameters, result.steps.size(), result.tokens_per_step);
  if (result.bubble) print_bubble(*result.bubble);
  if (!result.updates.empty()) print_staleness(result.updates);
  if (c.options.dtype == DType::bf16) fmt::print("products of bf16: {}\n", bf16_gemm_library());
  fmt::print("loss {:.4f} -> {:.4f}", first.loss, last.loss);
  if (!result.validation.empty()) fmt::print("   validation {:.4f}", result.validation.back().loss);
  fmt::print("   (unigram entropy of the data {:.4f})\n", result.unigram_entropy);
  const auto tokens =
      static_cast<double>(result.tokens_per_step) * static_cast<double>(result.steps.size());
  if (c.world.launch.clock == Clock::unit)
    fmt::print("{:g} units of time a step\n\n", seconds / static_cast<double>(result.steps.size()));
  else
    fmt::print("{:.0f} tokens/s{}\n\n", tokens / seconds,
               c.world.launch.clock == Clock::cpu ? " of virtual time" : "");
  fmt::print("{:<24} {:>4}  {:<40} {:>14} {:>14}\n", "quantity", "rank", "closed form", "expected",
             "measured");
  for (const TheoryRecord& t : result.theory)
    fmt::print("{:<24} {:>4}  {:<40} {:>14.0f} {:>14.0f}{}\n", t.quantity, t.rank, t.formula,
               t.expected, t.measured, t.expected == t.measured ? "" : "  DIFFERS");
  for (const LostRank& lost : result.lost)
    fmt::print("\nrank {} was lost in step {}: {}; the others went on\n", lost.rank, lost.step,
               lost.why);
  if (!result.sample.empty()) fmt::print("\n{}\n", result.sample);
}

int run(TrainCommand& c) {
  c.options.dtype = dtype_from_name(c.dtype);
  if (!c.reduce_dtype.empty()) c.options.reduce_dtype = dtype_from_name(c.reduce_dtype);
  c.options.overlap = !c.no_overlap;
  for (const std::string& text : c.slow_ranks) c.options.slow_ranks.insert(parse_slow_rank(text));
  c.world.read();
  LaunchOptions& world = c.world.launch;
  require(c.device != "none", "--device none", "training needs numbers; choose host or cuda");
  world.device = &device_named(c.device);
  world.trace = !c.trace.empty();
  if (world.clock != Clock::wall) {
    require(c.options.threads <= 1,
            fmt::format("--threads {} with the clock {}", c.options.threads, c.world.clock),
            "a rank computes with one thread there");
    c.options.threads = 1;
  }
  require(c.options.compute_seconds == 0 || world.clock == Clock::unit,
          fmt::format("--compute-time with the clock {}", c.world.clock),
          "other clocks measure it; add --clock unit");
  // A pass of a micro-batch through all of a rank's stages takes one unit, its backward pass two.
  if (world.clock == Clock::unit && c.options.compute_seconds == 0 &&
      (c.options.technique == "pipeline" || c.options.technique == "3d"))
    c.options.compute_seconds = 3.0 * c.options.micro_batches;
  if (c.options.data.empty()) c.options.data = default_text();
  check(c.options, launch_ranks(world));
  check_outputs(c);

  TrainResult result;
  {
    Progress progress(c.options.steps);
    launch(world, [&](RankContext& context) {
      TrainResult mine =
          train(context, c.options, [&](const StepRecord& step) { progress.show(step); });
      if (context.world.rank() == 0) result = std::move(mine);
    });
  }
  if (result.ranks.empty()) return 0;  // under mpirun rank 0 reports
  print_summary(c, result);
  if (!c.json.empty()) write_file(c.json, train_json(c.options, world, result));
  if (!c.trace.empty()) write_file(c.trace, trace_file(result.trace_events));
  if (!theory_holds(result))
    throw Error(
        ErrorKind::wrong_result, "a measured quantity differs from its closed form",
        {.hint = "see the lines marked DIFFERS; this is a bug in the technique or in its theory"});
  return 0;
}

}  // namespace

void add_train(CLI::App& program, Command& chosen) {
  CLI::App* train = program.add_subcommand("train", "train a mini-GPT with one technique");
  train->require_subcommand(1);
  train->fallthrough();
  for (const TechniqueEntry& entry : techniques()) {
    auto command = std::make_shared<TrainCommand>();
    CLI::App* app = train->add_subcommand(std::string(entry.name), std::string(entry.summary));
    command->options.technique = entry.name;
    add_train_options(*app, *command);
    app->fallthrough();
    app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
  }
}

}  // namespace lockstep
