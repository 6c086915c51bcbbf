#include "bench/techniques/pipeline.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/results/measure.h"
#include "bench/results/registered.h"
#include "bench/results/train_json.h"
#include "bench/techniques/trained_ranks.h"
#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "parallel/pipeline/simulator/simulate.h"
#include "parallel/train/trainer.h"

namespace lockstep {
namespace {

TrainResult trained(const LaunchOptions& world, const Plan& plan) {
  TrainResult result;
  launch(world, [&](RankContext& context) {
    TrainResult mine = train(context, plan);
    if (context.world.rank() == 0) result = std::move(mine);
  });
  return result;
}

void simulate_point(PipelinePoint& point, const ScheduleEntry& entry, const PassTimes& times) {
  const Timeline timeline = simulate(make_schedule(entry, point.shape), times);
  point.simulated_fraction = value_of(timeline.bubble_fraction());
  for (const RankTimeline& rank : timeline.ranks) point.in_flight.push_back(rank.in_flight);
  if (const auto makespan = entry.makespan(point.shape, times))
    point.expected_fraction =
        1 - value_of(Rational(point.shape.micro_batches) * times.total() / *makespan);
}

void train_point(PipelinePoint& point, const PipelineBenchOptions& options,
                 const LaunchOptions& world) {
  TrainOptions train = options.train;
  train.schedule = point.schedule;
  train.virtual_stages = point.shape.virtual_stages;
  train.micro_batches = point.shape.micro_batches;
  train.global_batch = point.shape.micro_batches * options.micro_batch_size;
  LaunchOptions ranks = world;
  ranks.ranks = point.shape.ranks;
  if (world.clock == Clock::unit) train.compute_seconds = 3.0 * train.micro_batches;
  const Plan plan = plan_of(train, ranks.ranks);
  const TrainResult result = trained(ranks, plan);
  point.trained = slow_ranks(plan, ranks, result);
  std::vector<double> seconds;
  for (const StepRecord& step : result.steps) seconds.push_back(step.seconds);
  point.step_seconds = percentile(seconds, 0.5);
  point.tokens_per_second = static_cast<double>(result.tokens_per_step) / point.step_seconds;
  point.measured_fraction = result.bubble->fraction;
  point.simulated_fraction = result.bubble->simulated_fraction;
  point.replayed_fraction = result.bubble->replayed_fraction;
  point.expected_fraction = result.bubble->expected_fraction;
  for (const RankRecord& rank : result.ranks)
    point.peak_activation_bytes.push_back(rank.peak_bytes.at("activations"));
}

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.2f}", 100 * *share) : "-";
}

void print_point(const PipelinePoint& point) {
  fmt::print("{:<20} {:>5} {:>6} {:>6} ", point.schedule, point.shape.ranks,
             point.shape.micro_batches, point.shape.virtual_stages);
  if (!point.skipped.empty()) return fmt::print("skipped: {}\n", point.skipped);
  fmt::print("{:>11} {:>10} {:>9} {:>9} {:>9}", percent(point.expected_fraction),
             percent(point.simulated_fraction), percent(point.replayed_fraction),
             percent(point.measured_fraction), *std::ranges::max_element(point.in_flight));
  if (point.measured_fraction)
    fmt::print(" {:>12.0f} {:>14}", point.tokens_per_second,
               *std::ranges::max_element(point.peak_activation_bytes));
  fmt::print("\n");
}

void report(benchmark::State& state, const PipelinePoint& point) {
  for (auto _ : state) state.SetIterationTime(point.step_seconds);
  state.counters["ranks"] = point.shape.ranks;
  state.counters["micro_batches"] = point.shape.micro_batches;
  state.counters["chunks"] = point.shape.virtual_stages;
  state.counters["simulated_fraction"] = point.simulated_fraction;
  if (point.expected_fraction) state.counters["expected_fraction"] = *point.expected_fraction;
  if (!point.measured_fraction) return;
  state.counters["bubble_fraction"] = *point.measured_fraction;
  state.counters["replayed_fraction"] = *point.replayed_fraction;
  state.counters["tokens_per_second"] = point.tokens_per_second;
}

// A simulation's times are in the unit of its passes, and every message takes a hop.
std::map<std::string, std::string> context_of(const PassTimes& times) {
  const Link hop{.alpha_s = value_of(times.hop)};
  return {{"lockstep.clock", std::string(name_of(Clock::unit))},
          {"lockstep.link", text_of(LinkModel{.inside = hop, .between = hop})},
          {"lockstep.forward", text_of(times.forward)},
          {"lockstep.input_gradient", text_of(times.input_gradient)},
          {"lockstep.weight_gradient", text_of(times.weight_gradient)}};
}

std::string name_of(const PipelinePoint& point) {
  return fmt::format("pipeline/{}/ranks:{}/micro_batches:{}/chunks:{}", point.schedule,
                     point.shape.ranks, point.shape.micro_batches, point.shape.virtual_stages);
}

}  // namespace

std::vector<PipelinePoint> bench_pipeline(const PipelineBenchOptions& options,
                                          const LaunchOptions& world) {
  fmt::print("{:<20} {:>5} {:>6} {:>6} {:>11} {:>10} {:>9} {:>9} {:>9} {:>12} {:>14}\n",
             "# bubble in %", "ranks", "m", "stages", "closed form", "simulated", "replayed",
             "measured", "in flight", "tokens/s", "activations B");
  std::vector<PipelinePoint> points;
  for (const std::string& name : options.schedules) {
    const ScheduleEntry& entry = find_schedule(name);
    const std::vector<int> own = {entry.virtual_stages};
    for (const int ranks : options.ranks)
      for (const int virtual_stages : entry.virtual_stages == 0 ? options.virtual_stages : own)
        for (const int micro_batches : options.micro_batches) {
          PipelinePoint point{.schedule = name,
                              .shape = {.ranks = ranks,
                                        .micro_batches = micro_batches,
                                        .virtual_stages = virtual_stages}};
          try {
            simulate_point(point, entry, options.times);
            if (!options.only_simulates) train_point(point, options, world);
          } catch (const Error& error) {
            if (error.kind() != ErrorKind::bad_input) throw;
            point.skipped = error.what();
          }
          print_point(point);
          print_slow(point.trained);
          points.push_back(std::move(point));
        }
  }
  return points;
}

std::string pipeline_json(const std::vector<PipelinePoint>& points,
                          const PipelineBenchOptions& options, const LaunchOptions& world) {
  std::vector<const PipelinePoint*> written;
  for (const PipelinePoint& point : points) {
    if (!point.skipped.empty()) continue;
    written.push_back(&point);
    benchmark::RegisterBenchmark(name_of(point).c_str(),
                                 [&point](benchmark::State& state) { report(state, point); })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  // Readers of Google Benchmark's format ignore unknown keys.
  auto file = run_registered(options.only_simulates
                                 ? context_of(options.times)
                                 : std::map<std::string, std::string>{
                                       {"lockstep.clock", std::string(name_of(world.clock))},
                                       {"lockstep.link", text_of(world.links)}});
  std::vector<std::pair<std::string, const SlowRanks*>> own_times;
  for (std::size_t i = 0; i < written.size(); ++i) {
    file["benchmarks"][i]["in_flight"] = written[i]->in_flight;
    if (written[i]->measured_fraction)
      file["benchmarks"][i]["peak_activation_bytes"] = written[i]->peak_activation_bytes;
    own_times.emplace_back(name_of(*written[i]), &written[i]->trained);
  }
  add_trained_ranks(file, own_times);
  return json_text(file);
}

}  // namespace lockstep
