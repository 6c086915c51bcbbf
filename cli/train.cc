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
#include "cli/world_flags.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/trace.h"
#include "models/kernels_info.h"
#include "parallel/pipeline/schedules.h"
#include "parallel/technique.h"
#include "parallel/trainer.h"

namespace lockstep {
namespace {

struct TrainCommand {
  TrainOptions options;
  WorldFlags world;
  std::string dtype = "f32", reduce_dtype;
  std::string json, trace;
  std::vector<std::string> slow_ranks;
  bool no_overlap = false;
};

void add_run_options(CLI::App& app, TrainCommand& c) {
  c.world.add(app);
  app.add_option(
      "--threads", c.options.threads,
      "threads of each rank; 0: the cores divided by the ranks, under a virtual clock 1");
  app.add_option("--slow-rank", c.slow_ranks,
                 "RANK:FACTOR: this rank computes that many times longer; may be given again");
  app.add_option("--compute-time", c.options.compute_seconds,
                 "under the clock unit: what forward and backward of a rank's part of a step take");
  app.add_option("--json", c.json, "write the result to this file");
  app.add_option("--trace", c.trace, "write a trace for ui.perfetto.dev to this file");
  app.add_option("--save", c.options.save, "write the final weights (safetensors) to this file");
  app.add_option("--sample", c.options.sample, "write that many tokens of text after training");
  app.add_option("--prompt", c.options.prompt, "what the text begins with");
}

void add_model_options(CLI::App& app, TrainCommand& c) {
  TrainOptions& o = c.options;
  app.add_option("--model", o.model, "nano, small, gpt2, or a config.json")->capture_default_str();
  app.add_option("--init", o.init, "weights to start from (safetensors)");
  app.add_option("--data", o.data, "text or token file; default: the source text of this program");
  app.add_option("--order", o.order, "random or sequential")->capture_default_str();
  app.add_option("--seed", o.seed, "of weights and data order")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--dtype", c.dtype,
                 "of parameters, activations and gradients: f32, f64, bf16 or f16; 16 bits are "
                 "computed with in f32, and AdamW keeps f32 weights")
      ->capture_default_str();
  app.add_option(
      "--loss-scaling", o.loss_scaling,
      "when the scale of the loss falls and grows: as torch, megatron or deepspeed do, or "
      "none; default: torch for f16, else none");
  app.add_option("--global-batch", o.global_batch, "sequences of a step, over all ranks")
      ->capture_default_str();
  app.add_option("--micro-batches", o.micro_batches, "parts of a rank's share, one after another")
      ->capture_default_str();
  app.add_option("--sequence-length", o.sequence_length,
                 "tokens of a sequence; 0: the model's context");
  app.add_option("--validation-fraction", o.validation_fraction,
                 "share at the end of the data held out");
  app.add_option("--eval-interval", o.eval_interval,
                 "steps between validations; 0: at the end only");
}

void add_optimizer_options(CLI::App& app, TrainCommand& c) {
  TrainOptions& o = c.options;
  app.add_option("--steps", o.steps, "optimizer steps")->capture_default_str();
  app.add_option("--lr", o.learning_rate, "highest learning rate")->capture_default_str();
  app.add_option("--warmup-steps", o.warmup_steps, "steps of linear warm-up")
      ->capture_default_str();
  app.add_option("--min-lr", o.minimum_learning_rate, "fall to this along a cosine; default: stay");
  app.add_option("--weight-decay", o.weight_decay)->capture_default_str();
  app.add_option("--grad-clip", o.grad_clip, "largest gradient norm; 0: any")
      ->capture_default_str();
  app.add_option("--beta1", o.beta1)->capture_default_str();
  app.add_option("--beta2", o.beta2)->capture_default_str();
  app.add_option("--eps", o.eps)->capture_default_str();
}

std::string all_reduce_names() {
  std::string names;
  for (const AllReduceAlgorithm& entry : all_reduce_algorithms())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  return names;
}

void add_ddp_options(CLI::App& app, TrainCommand& c) {
  app.add_option("--algorithm", c.options.algorithm,
                 fmt::format("of the all-reduce: {}, or auto", all_reduce_names()))
      ->capture_default_str();
  app.add_option(
      "--reduce-dtype", c.reduce_dtype,
      "f64, f32, bf16 or f16: what gradients are rounded to for the all-reduce; default: "
      "their own type");
  app.add_flag("--no-overlap", c.no_overlap, "all-reduce after backward instead of beside it");
  app.add_option("--first-bucket-bytes", c.options.first_bucket_bytes)->capture_default_str();
  app.add_option("--bucket-bytes", c.options.bucket_bytes)->capture_default_str();
}

void add_ps_options(CLI::App& app, TrainCommand& c) {
  TrainOptions& o = c.options;
  app.add_option("--servers", o.servers, "ranks that are servers; the others are workers")
      ->capture_default_str();
  app.add_flag("--colocated", o.colocated, "a server beside every worker instead");
  app.add_option("--mode", o.mode,
                 "bsp: all workers in step; asp: none waits for another; ssp: none is more than "
                 "--staleness steps ahead")
      ->capture_default_str();
  app.add_option("--staleness", o.staleness)->capture_default_str();
}

void add_pipeline_options(CLI::App& app, TrainCommand& c) {
  TrainOptions& o = c.options;
  std::string names;
  for (const ScheduleEntry& entry : schedules())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  app.add_option("--schedule", o.schedule, names)->capture_default_str();
  app.add_option("--schedule-file", o.schedule_file,
                 "a schedule in PyTorch's action text instead: a line for every rank");
  app.add_option("--chunks", o.chunks, "stages on every rank; 0: what the schedule has, or 2");
  app.add_option("--group-size", o.group_size,
                 "of interleaved: micro-batches that pass a stage in turn; 0: as many as ranks");
  app.add_option(
         "--recompute", o.recompute,
         "none, or full: keep the stage's input alone, and go forward again before backward")
      ->capture_default_str();
}

void print_bubble(const BubbleRecord& bubble) {
  if (bubble.expected_fraction)
    fmt::print("bubble: closed form {:.2f} %, ", 100 * *bubble.expected_fraction);
  else
    fmt::print("bubble: ");
  fmt::print("simulated with the times of its passes {:.2f} %, measured {:.2f} %\n",
             100 * bubble.simulated_fraction, 100 * bubble.fraction);
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
  if (world.clock == Clock::unit && c.options.technique == "pipeline" &&
      c.options.compute_seconds == 0)
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
    add_run_options(*app, *command);
    add_model_options(*app, *command);
    add_optimizer_options(*app, *command);
    if (entry.name == "ddp") add_ddp_options(*app, *command);
    if (entry.name == "pipeline") add_pipeline_options(*app, *command);
    if (entry.name == "ps") add_ps_options(*app, *command);
    app->fallthrough();
    app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
  }
}

}  // namespace lockstep
