// The results of the benchmark of context parallelism as a file.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/results/registered.h"
#include "bench/techniques/context.h"
#include "bench/techniques/context_error.h"
#include "bench/techniques/trained_ranks.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

std::string name_of(const ContextPoint& p) {
  return fmt::format("cp/{}/link:{}/heads:{}/kv_heads:{}/length:{}/ranks:{}", p.method, p.link,
                     p.heads, p.kv_heads, p.length, p.ranks);
}

void report(benchmark::State& state, const ContextPoint& point) {
  for (auto _ : state) state.SetIterationTime(point.step_seconds);
  state.counters["ranks"] = point.ranks;
  state.counters["length"] = point.length;
  state.counters["tokens_per_second"] = point.tokens_per_second;
  state.counters["imbalance"] = point.imbalance();
}

void add_figures(ordered_json& entry, const ContextPoint& p) {
  entry["method"] = p.method;
  entry["link"] = p.link;
  entry["heads"] = p.heads;
  entry["kv_heads"] = p.kv_heads;
  entry["step_seconds"] = p.step_seconds;
  entry["exposed_seconds"] = p.exposed_seconds;
  if (const double speed = 1 / parse_links(p.link).between.beta_s_per_byte; std::isfinite(speed))
    entry["link_bytes_per_s"] = speed;
  if (p.attention_seconds) {
    entry["attention_seconds"] = *p.attention_seconds;
    entry["expected_attention_seconds"] = *p.expected_attention_seconds;
  }
  entry["pairs"] = p.pairs;
  entry["expected_pairs"] = p.expected_pairs;
  entry["exchanged_bytes"] = exchanged_bytes(p.sent_bytes);
  entry["expected_exchanged_bytes"] = exchanged_bytes(p.expected_sent_bytes);
  entry["sent_bytes"] = p.sent_bytes;
  entry["expected_sent_bytes"] = p.expected_sent_bytes;
  entry["peak_bytes"] = p.peak_bytes;
  entry["expected_peak_bytes"] = p.expected_peak_bytes;
  if (p.scores_bytes > 0) entry["scores_bytes"] = p.scores_bytes;
}

ordered_json limits_json(const std::vector<ContextPoint>& points) {
  ordered_json all = ordered_json::array();
  for (const ContextLimit& l : context_limits(points))
    all.push_back({{"ranks", l.ranks},
                   {"heads", l.heads},
                   {"kv_heads", l.kv_heads},
                   {"length", l.length},
                   {"link", l.link},
                   {"measured", l.measured},
                   {"expected", l.expected},
                   {"limit", l.limit},
                   {"of_step", l.of_step}});
  return all;
}

ordered_json crossovers_json(const std::vector<ContextPoint>& points) {
  ordered_json all = ordered_json::array();
  for (const ContextCrossover& c : context_crossovers(points))
    all.push_back({{"quantity", c.quantity},
                   {"over", c.over},
                   {"at", c.at},
                   {"ulysses_is_less_above", c.ulysses_is_less_above},
                   {"ranks", c.ranks},
                   {"heads", c.heads},
                   {"kv_heads", c.kv_heads},
                   {"length", c.length},
                   {"link", c.link}});
  return all;
}

ordered_json masks_json(int ranks) {
  ordered_json all = ordered_json::array();
  for (const ContextMask& mask : context_masks(ranks))
    all.push_back({{"layout", mask.layout},
                   {"ranks", mask.ranks},
                   {"owners", mask.owners},
                   {"pairs", mask.pairs}});
  return all;
}

std::map<std::string, std::string> context_of(const ContextBenchOptions& options) {
  const TrainOptions& train = options.train;
  // For a config.json, the name without folder and ending.
  const std::filesystem::path path(train.model);
  const std::string model = path.extension() == ".json" ? path.stem().string() : train.model;
  std::map<std::string, std::string> context = {
      {"lockstep.clock",
       std::string(lockstep::name_of(options.simulates ? Clock::unit : options.clock))},
      {"lockstep.model", fmt::format("{}, {}, {} sequence{}", model, lockstep::name_of(train.dtype),
                                     train.global_batch, train.global_batch == 1 ? "" : "s")}};
  if (options.simulates)
    context["lockstep.roofline"] =
        fmt::format("{:g} TFLOP/s, {:g} GB/s", options.roofline.flops_per_s / 1e12,
                    options.roofline.bytes_per_s / 1e9);
  return context;
}

}  // namespace

std::string context_json(const std::vector<ContextPoint>& points,
                         const ContextBenchOptions& options) {
  std::vector<const ContextPoint*> written;
  for (const ContextPoint& point : points) {
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
    add_figures(file["benchmarks"][i], *written[i]);
    own_times.emplace_back(name_of(*written[i]), &written[i]->trained);
  }
  add_trained_ranks(file, own_times);
  file["context_limits"] = limits_json(points);
  file["context_crossovers"] = crossovers_json(points);
  // Up to as many ranks as colours can tell apart.
  constexpr int most_ranks = 8;
  const int ranks = options.ranks.front();
  if (ranks > 1 && ranks <= most_ranks) file["context_masks"] = masks_json(ranks);
  return json_text(file);
}

std::string context_errors_json(const std::vector<ContextError>& errors,
                                const ContextErrorOptions& options) {
  for (const ContextError& error : errors)
    benchmark::RegisterBenchmark(
        fmt::format("cp_error/{}/ranks:{}", error.accumulation, error.ranks).c_str(),
        [&error](benchmark::State& state) {
          for (auto _ : state) state.SetIterationTime(0);
          state.counters["ranks"] = error.ranks;
          state.counters["output_error"] = error.of_output;
          state.counters["gradient_error"] = error.of_gradients;
        })
        ->UseManualTime()
        ->Iterations(1);
  const AttentionShape& s = options.shape;
  auto file = run_registered(
      {{"lockstep.attention", fmt::format("{} tokens, {} heads of {}, {} of keys and values",
                                          s.length, s.heads, s.head_size, s.kv_heads)}});
  for (std::size_t i = 0; i < errors.size(); ++i)
    file["benchmarks"][i]["accumulation"] = errors[i].accumulation;
  return json_text(file);
}

}  // namespace lockstep
