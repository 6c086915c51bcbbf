// The results of the benchmark of factorings as a file.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/results/registered.h"
#include "bench/techniques/factorings.h"
#include "collectives/base/json_text.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;
using enum Axis;

std::string entry_name(const Factoring& f, const std::string& link) {
  return fmt::format("3d/tp:{}/cp:{}/pp:{}/dp:{}/link:{}", f.lengths[tp], f.lengths[cp],
                     f.lengths[pp], f.lengths[dp], link);
}

ordered_json lengths_json(const Factoring& f) {
  ordered_json lengths;
  for (const Axis axis : {tp, cp, pp, dp}) lengths[std::string(name_of(axis))] = f.lengths[axis];
  return lengths;
}

ordered_json exposed_json(const StepParts& parts) {
  return {{"tp", parts.tp}, {"cp", parts.cp}, {"dp", parts.dp}, {"pp", parts.pp}};
}

void add_figures(ordered_json& entry, const Factoring& f, const FactoringBenchOptions& options) {
  entry.update(lengths_json(f));
  entry["link"] = options.link;
  entry["micro_batches"] = f.micro_batches;
  entry["step_seconds"] = f.step_seconds;
  entry["compute_seconds"] = f.parts.compute;
  entry["bubble_seconds"] = f.parts.bubble;
  entry["exposed_by_axis"] = exposed_json(f.parts);
  if (f.expected_parts) {
    entry["expected_compute_seconds"] = f.expected_parts->compute;
    entry["expected_exposed_by_axis"] = exposed_json(*f.expected_parts);
  }
  entry["peak_bytes"] = f.peak_bytes;
  entry["busiest_rank"] = f.busiest_rank;
  entry["kinds_of_ranks"] = f.kinds_of_ranks;
  if (options.memory_limit) entry["fits"] = f.bytes() <= *options.memory_limit;
}

ordered_json most_ranks_json(const std::vector<Factoring>& factorings, double limit, bool alone) {
  const MostRanks most = most_ranks(factorings, limit, alone);
  ordered_json json = {{"measured", most.measured ? most.measured->ranks() : 0}};
  if (most.expected) json["expected"] = *most.expected;
  if (most.measured) json["lengths"] = lengths_json(*most.measured);
  return json;
}

std::map<std::string, std::string> context_of(const FactoringBenchOptions& options) {
  const TrainOptions& train = options.train;
  // For a config.json, the name without folder and ending.
  const std::filesystem::path path(train.model);
  const std::string model = path.extension() == ".json" ? path.stem().string() : train.model;
  // By default one sequence a rank.
  const int batch = train.global_batch == 0 ? options.ranks.front() : train.global_batch;
  const bool varies = train.global_batch == 0 && options.ranks.size() > 1;
  return {{"lockstep.clock", std::string(name_of(Clock::unit))},
          {"lockstep.model",
           fmt::format("{}, {}, {}", model, name_of(train.dtype),
                       varies ? "1 sequence a rank"
                              : fmt::format("{} sequence{}", batch, batch == 1 ? "" : "s"))},
          {"lockstep.roofline",
           options.roofline.timed == Roofline::Timed::products
               ? fmt::format("{:g} TFLOP/s, products only", options.roofline.flops_per_s / 1e12)
               : fmt::format("{:g} TFLOP/s, {:g} GB/s", options.roofline.flops_per_s / 1e12,
                             options.roofline.bytes_per_s / 1e9)}};
}

}  // namespace

std::string factorings_json(const std::vector<Factoring>& factorings,
                            const FactoringBenchOptions& options) {
  std::vector<const Factoring*> written;
  ordered_json refused = ordered_json::array();
  for (const Factoring& factoring : factorings) {
    if (!factoring.refused.empty()) {
      refused.push_back(lengths_json(factoring));
      refused.back()["reason"] = factoring.refused;
      continue;
    }
    written.push_back(&factoring);
    benchmark::RegisterBenchmark(entry_name(factoring, options.link).c_str(),
                                 [&factoring](benchmark::State& state) {
                                   for (auto _ : state)
                                     state.SetIterationTime(factoring.step_seconds);
                                   state.counters["ranks"] = factoring.ranks();
                                 })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  auto file = run_registered(context_of(options));
  for (std::size_t i = 0; i < written.size(); ++i)
    add_figures(file["benchmarks"][i], *written[i], options);
  file["refused"] = refused;
  if (options.per_block) file["per_block"] = true;
  if (options.memory_limit) file["memory_limit_bytes"] = *options.memory_limit;
  if (options.exposed_limit) {
    ordered_json& most = file["most_ranks"];
    most["exposed_limit"] = *options.exposed_limit;
    most["together"] = most_ranks_json(factorings, *options.exposed_limit, false);
    most["alone"] = most_ranks_json(factorings, *options.exposed_limit, true);
  }
  const Factoring* const chosen = fastest(factorings, options);
  if (!chosen) return json_text(file);
  file["fastest"] = lengths_json(*chosen);
  for (const Factoring* other : written) {
    if (other == chosen) continue;
    ordered_json& entry = file["not_chosen"].emplace_back(lengths_json(*other));
    entry["reason"] = why_not(*other, *chosen, options);
  }
  return json_text(file);
}

}  // namespace lockstep
