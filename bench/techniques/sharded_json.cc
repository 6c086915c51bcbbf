// The results of the benchmark of sharding: crossovers, and the file.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/results/registered.h"
#include "bench/techniques/sharded.h"
#include "bench/techniques/trained_ranks.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

double speed_of(const ShardedPoint& point) {
  return 1 / parse_links(point.link).between.beta_s_per_byte;
}

// The points with a time and a link of finite speed, from the slowest link to the fastest.
std::vector<const ShardedPoint*> line_of(const std::vector<ShardedPoint>& points,
                                         const std::string& strategy, int ranks) {
  std::vector<const ShardedPoint*> line;
  for (const ShardedPoint& p : points)
    if (p.strategy == strategy && p.ranks == ranks && p.step_seconds && std::isfinite(speed_of(p)))
      line.push_back(&p);
  std::ranges::stable_sort(line, {}, [](const ShardedPoint* p) { return speed_of(*p); });
  return line;
}

void add_crossovers(const std::vector<ShardedPoint>& points, const std::string& strategy,
                    const std::string& reference, int ranks, std::vector<Crossover>& found) {
  const auto line = line_of(points, strategy, ranks), other = line_of(points, reference, ranks);
  if (line.size() != other.size()) return;
  // Above 0: slower than the reference.
  const auto difference = [&](std::size_t i) {
    return std::log(*line[i]->step_seconds / *other[i]->step_seconds);
  };
  for (std::size_t i = 1; i < line.size(); ++i) {
    const double before = difference(i - 1), after = difference(i);
    if (before == 0 || before * after >= 0) continue;
    const double slow = std::log(speed_of(*line[i - 1])), fast = std::log(speed_of(*line[i]));
    found.push_back({.strategy = strategy,
                     .reference = reference,
                     .ranks = ranks,
                     .bytes_per_s = std::exp(slow + (fast - slow) * before / (before - after)),
                     .is_faster_above = after < 0});
  }
}

template <typename Value>
std::vector<Value> distinct(const std::vector<ShardedPoint>& points, Value ShardedPoint::*member) {
  std::vector<Value> values;
  for (const ShardedPoint& p : points)
    if (std::ranges::count(values, p.*member) == 0) values.push_back(p.*member);
  return values;
}

std::string name_of(const ShardedPoint& point) {
  return fmt::format("sharded/{}/link:{}/ranks:{}", point.strategy, point.link, point.ranks);
}

void report(benchmark::State& state, const ShardedPoint& point) {
  for (auto _ : state) state.SetIterationTime(point.step_seconds.value_or(0));
  state.counters["ranks"] = point.ranks;
  state.counters["paper_bytes"] = point.paper_bytes;
}

std::map<std::string, std::string> context_of(const ShardedBenchOptions& options) {
  const TrainOptions& train = options.train;
  // For a config.json, the name without folder and ending.
  const std::filesystem::path path(train.model);
  const std::string model = path.extension() == ".json" ? path.stem().string() : train.model;
  std::map<std::string, std::string> context = {
      {"lockstep.clock",
       std::string(name_of(options.mode == ShardedMode::train ? options.clock : Clock::unit))},
      {"lockstep.model",
       fmt::format("{}, {}, {} sequence{} a rank", model, name_of(train.dtype),
                   options.micro_batch_size, options.micro_batch_size == 1 ? "" : "s")}};
  if (options.mode == ShardedMode::simulate)
    context["lockstep.roofline"] =
        fmt::format("{:g} TFLOP/s, {:g} GB/s", options.roofline.flops_per_s / 1e12,
                    options.roofline.bytes_per_s / 1e9);
  return context;
}

}  // namespace

std::vector<Crossover> crossovers(const std::vector<ShardedPoint>& points) {
  std::vector<Crossover> found;
  for (const std::string reference : {"ddp", "tp"})
    for (const int ranks : distinct(points, &ShardedPoint::ranks))
      for (const std::string& strategy : distinct(points, &ShardedPoint::strategy))
        if (strategy != reference) add_crossovers(points, strategy, reference, ranks, found);
  return found;
}

std::string sharded_json(const std::vector<ShardedPoint>& points,
                         const ShardedBenchOptions& options) {
  std::vector<const ShardedPoint*> written;
  for (const ShardedPoint& point : points) {
    if (!point.skipped.empty()) continue;
    written.push_back(&point);
    benchmark::RegisterBenchmark(name_of(point).c_str(),
                                 [&point](benchmark::State& state) { report(state, point); })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  auto file = run_registered(context_of(options));
  std::vector<std::pair<std::string, const SlowRanks*>> own_times;
  for (std::size_t i = 0; i < written.size(); ++i) {
    auto& entry = file["benchmarks"][i];
    const ShardedPoint& point = *written[i];
    entry["strategy"] = point.strategy;
    entry["link"] = point.link;
    if (point.step_seconds) {
      entry["step_seconds"] = *point.step_seconds;
      if (point.expected_step_seconds)
        entry["expected_step_seconds"] = *point.expected_step_seconds;
      if (const double speed = speed_of(point); std::isfinite(speed))
        entry["link_bytes_per_s"] = speed;
    }
    entry["sent_bytes"] = point.sent_bytes;
    entry["expected_sent_bytes"] = point.expected_sent_bytes;
    entry["peak_bytes"] = point.peak_bytes;
    entry["expected_peak_bytes"] = point.expected_peak_bytes;
    entry["kept_bytes"] = point.kept_bytes;
    if (point.whole_blocks) entry["whole_blocks"] = *point.whole_blocks;
    own_times.emplace_back(name_of(point), &point.trained);
  }
  add_trained_ranks(file, own_times);
  file["crossovers"] = nlohmann::ordered_json::array();
  for (const Crossover& c : crossovers(points))
    file["crossovers"].push_back({{"strategy", c.strategy},
                                  {"reference", c.reference},
                                  {"ranks", c.ranks},
                                  {"bytes_per_s", c.bytes_per_s},
                                  {"is_faster_above", c.is_faster_above}});
  return json_text(file);
}

}  // namespace lockstep
