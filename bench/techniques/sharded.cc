#include "bench/techniques/sharded.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "bench/results/measure.h"
#include "bench/results/train_json.h"
#include "bench/techniques/counted_ranks.h"
#include "bench/techniques/trained_ranks.h"
#include "collectives/base/error.h"
#include "models/optimizers/optimizers.h"
#include "parallel/predict/predict.h"
#include "parallel/predict/timeline.h"
#include "parallel/sharded/sharding.h"
#include "parallel/train/dry_run.h"
#include "parallel/train/trainer.h"

namespace lockstep {
namespace {

struct Strategy {
  std::string name, technique;
  int zero_stage;
  std::string prefetch = "backward-pre";
  bool forward_prefetch = false;
};

const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> all = {
      {"ddp", "ddp", 0},
      {"zero-1", "zero", 1},
      {"zero-2", "zero", 2},
      {"zero-3", "zero", 3},
      {"fsdp-none", "fsdp", 3, "none"},
      {"fsdp-backward-post", "fsdp", 3, "backward-post"},
      {"fsdp-backward-pre", "fsdp", 3, "backward-pre"},
      {"fsdp-forward", "fsdp", 3, "backward-pre", true},
      {"tp", "tp", 0},
  };
  return all;
}

const Strategy& find_strategy(const std::string& name) {
  const auto found = std::ranges::find(strategies(), name, &Strategy::name);
  require(found != strategies().end(), fmt::format("no strategy '{}'", name),
          fmt::format("choose from {}", fmt::join(sharded_strategies(), ", ")));
  return *found;
}

Plan plan_of_point(const ShardedPoint& point, const ShardedBenchOptions& options) {
  const Strategy& strategy = find_strategy(point.strategy);
  TrainOptions train = options.train;
  train.technique = strategy.technique;
  if (technique(strategy.technique).chooses_zero_stage) train.zero_stage = strategy.zero_stage;
  train.prefetch = strategy.prefetch;
  train.forward_prefetch = strategy.forward_prefetch;
  train.global_batch = options.micro_batch_size * point.ranks;
  train.threads = options.clock == Clock::wall ? 0 : 1;
  return plan_of(train, point.ranks);
}

void take_counts(ShardedPoint& point, const RankRecord& rank) {
  for (const auto& [label, volume] : rank.traffic) point.sent_bytes[label] = volume.sent_bytes;
  point.peak_bytes = rank.peak_bytes;
}

void simulate_point(ShardedPoint& point, const Plan& plan, const Roofline& roofline) {
  const std::vector<CountedRank> ranks = simulate_ranks(plan, roofline, point.link);
  point.step_seconds = slowest(ranks);
  take_counts(point, ranks.front().record);
}

void train_point(ShardedPoint& point, const Plan& plan, const LaunchOptions& world) {
  TrainResult result;
  launch(world, [&](RankContext& context) {
    TrainResult mine = train(context, plan);
    if (context.world.rank() == 0) result = std::move(mine);
  });
  std::vector<double> seconds;
  for (const StepRecord& step : result.steps) seconds.push_back(step.seconds);
  point.step_seconds = percentile(seconds, 0.5);
  take_counts(point, result.ranks.front());
  point.trained = slow_ranks(plan, world, result);
}

// The closed forms of rank 0.
void expect(ShardedPoint& point, const Plan& plan, const Environment& environment) {
  const Prediction prediction = predict(plan, 0, environment);
  for (const auto& [label, volume] : prediction.traffic)
    point.expected_sent_bytes[label] = volume.sent_bytes;
  for (int use = 0; use < memory_uses; ++use)
    if (const auto& figure = prediction.peak_bytes[static_cast<std::size_t>(use)];
        figure && figure->exact)
      point.expected_peak_bytes[std::string(name_of(static_cast<MemoryUse>(use)))] = figure->value;

  const RankOutline outline(plan, 0);
  const Count element = element_bytes(plan.options.dtype), psi = outline.parameters().count();
  const auto sharding = sharding_of(plan);
  const int stage = sharding ? sharding->stage : 0;
  Count shards = psi;
  if (sharding) {
    const RankUnits units = sharded_units(outline.model(), *sharding);
    const ShardedElements held = sharded_elements(plan, 0, *sharding, units);
    shards = held.shards;
    // The root is the first unit, and the blocks are equal.
    if (sharding->shards_parameters())
      point.whole_blocks = static_cast<double>(point.peak_bytes.at("parameters") / element -
                                               shards - units.all[0].count) /
                           static_cast<double>(units.all[1].count);
  }
  point.kept_bytes = {{"parameters", (stage >= 3 ? shards : psi) * element},
                      {"gradients", (stage >= 2 ? shards : psi) * element},
                      {"optimizer", shards * optimizer_bytes(optimizer_settings(plan.options),
                                                             plan.options.dtype, Parameter{})}};
  // The paper's formulas are those of replicas.
  if (technique(plan.technique()).free_axis == Axis::dp)
    point.paper_bytes = zero_bytes(stage, static_cast<double>(psi), plan.ranks, plan.options.dtype);
}

void run_point(ShardedPoint& point, const ShardedBenchOptions& options) {
  const Plan plan = plan_of_point(point, options);
  LaunchOptions world{.ranks = point.ranks, .fault = {}, .device = &none_device()};
  switch (options.mode) {
    case ShardedMode::train:
      world.device = &host_device();
      world.clock = options.clock;
      if (options.clock != Clock::wall) world.links = parse_links(point.link);
      train_point(point, plan, world);
      break;
    case ShardedMode::simulate:
      simulate_point(point, plan, options.roofline);
      break;
    case ShardedMode::count:
      launch_alone(world, 0, [&](RankContext& context) {
        take_counts(point, dry_run(context, plan).ranks.front());
      });
      break;
  }
  if (options.mode == ShardedMode::simulate && sharding_of(plan))
    point.expected_step_seconds =
        predicted_step(plan, 0, options.roofline, parse_links(point.link)).whole;
  expect(point, plan,
         {.computes_on_host = options.mode != ShardedMode::simulate,
          .multiplies_bf16 = options.mode != ShardedMode::train || host_multiplies_bf16()});
  if (const auto wrong = point.differences(); !wrong.empty())
    throw Error(ErrorKind::wrong_result,
                fmt::format("{} on {} ranks differs from its closed forms: {}", point.strategy,
                            point.ranks, fmt::join(wrong, ", ")),
                {.hint = "this is a bug in the strategy or in its theory"});
}

double mib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::int64_t sum_of(const ShardedPoint::ByName& names) {
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : names) sum += bytes;
  return sum;
}

void print_point(const ShardedPoint& p) {
  fmt::print("{:<20} {:>5} {:<24} ", p.strategy, p.ranks, p.link);
  if (!p.skipped.empty()) return fmt::print("skipped: {}\n", p.skipped);
  const auto sent = [&](const char* label) {
    const auto found = p.sent_bytes.find(label);
    return found == p.sent_bytes.end() ? 0 : mib(found->second);
  };
  const auto milliseconds = [](const std::optional<double>& seconds) {
    return seconds ? fmt::format("{:.3f}", 1e3 * *seconds) : "-";
  };
  fmt::print("{:>10} {:>10} {:>10.2f} {:>11.2f} {:>10.2f} {:>10.2f}", milliseconds(p.step_seconds),
             milliseconds(p.expected_step_seconds), mib(sum_of(p.sent_bytes)),
             mib(sum_of(p.expected_sent_bytes)), sent("gradients"), sent("parameters"));
  for (const char* use : {"parameters", "gradients", "optimizer", "activations", "total"})
    fmt::print(" {:>10.2f}", mib(p.peak_bytes.at(use)));
  fmt::print(" {:>10.2f} {:>10} {:>6}\n", mib(sum_of(p.kept_bytes)),
             p.paper_bytes > 0 ? fmt::format("{:.2f}", p.paper_bytes / (1 << 20)) : "-",
             p.whole_blocks ? fmt::format("{:g}", *p.whole_blocks) : "-");
}

}  // namespace

const std::vector<std::string>& sharded_strategies() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Strategy& strategy : strategies()) all.push_back(strategy.name);
    return all;
  }();
  return names;
}

std::vector<std::string> ShardedPoint::differences() const {
  std::vector<std::string> wrong;
  const auto compare = [&](const ByName& expected, const ByName& measured, const char* what) {
    for (const auto& [name, bytes] : expected) {
      const auto found = measured.find(name);
      const std::int64_t counted = found == measured.end() ? 0 : found->second;
      if (counted != bytes)
        wrong.push_back(fmt::format("{} {} {} instead of {}", what, name, counted, bytes));
    }
  };
  compare(expected_sent_bytes, sent_bytes, "sent bytes of");
  for (const auto& [label, bytes] : sent_bytes)
    if (!expected_sent_bytes.contains(label) && bytes != 0)
      wrong.push_back(fmt::format("sent bytes of {} {} instead of none", label, bytes));
  compare(expected_peak_bytes, peak_bytes, "peak bytes of");
  return wrong;
}

double zero_bytes(int stage, double psi, int ranks, DType dtype) {
  const auto element = static_cast<double>(element_bytes(dtype));
  const auto held = [&](int from_stage) { return stage >= from_stage ? psi / ranks : psi; };
  return held(3) * element + held(2) * element +
         held(1) * static_cast<double>(optimizer_bytes({}, dtype, Parameter{}));
}

std::vector<ShardedPoint> bench_sharded(const ShardedBenchOptions& options) {
  for (const std::string& name : options.strategies) find_strategy(name);
  fmt::print("{:<20} {:>5} {:<24} {:>10} {:>10} {:>10} {:>11} {:>10} {:>10}", "# MiB of rank 0",
             "ranks", "link", "step ms", "timeline", "sent", "closed form", "gradients",
             "parameters");
  for (const char* column : {"peak param", "peak grad", "peak opt", "peak act", "peak all", "kept"})
    fmt::print(" {:>10}", column);
  fmt::print(" {:>10} {:>6}\n", "ZeRO paper", "blocks");
  std::vector<ShardedPoint> points;
  for (const std::string& link : options.links)
    for (const int ranks : options.ranks)
      for (const std::string& strategy : options.strategies) {
        ShardedPoint point{.strategy = strategy, .link = link, .ranks = ranks};
        try {
          run_point(point, options);
        } catch (const Error& error) {
          if (error.kind() != ErrorKind::bad_input) throw;
          point.skipped = error.what();
        }
        print_point(point);
        print_slow(point.trained);
        points.push_back(std::move(point));
      }
  return points;
}

}  // namespace lockstep
