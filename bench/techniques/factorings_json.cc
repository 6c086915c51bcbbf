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

void add_figures(ordered_json& entry, const Factoring& f, const FactoringBenchOptions& options) {
  entry.update(lengths_json(f));
  entry["link"] = options.link;
  entry["micro_batches"] = f.micro_batches;
  entry["step_seconds"] = f.step_seconds;
  entry["compute_seconds"] = f.parts.compute;
  entry["bubble_seconds"] = f.parts.bubble;
  entry["exposed_by_axis"] = {
      {"tp", f.parts.tp}, {"cp", f.parts.cp}, {"dp", f.parts.dp}, {"pp", f.parts.pp}};
  entry["peak_bytes"] = f.peak_bytes;
  entry["busiest_rank"] = f.busiest_rank;
  entry["kinds_of_ranks"] = f.kinds_of_ranks;
  if (options.memory_limit) entry["fits"] = f.bytes() <= *options.memory_limit;
}

std::map<std::string, std::string> context_of(const FactoringBenchOptions& options) {
  const TrainOptions& train = options.train;
  // For a config.json, the name without folder and ending.
  const std::filesystem::path path(train.model);
  const std::string model = path.extension() == ".json" ? path.stem().string() : train.model;
  const int batch = train.global_batch == 0 ? options.ranks : train.global_batch;
  return {{"lockstep.clock", std::string(name_of(Clock::unit))},
          {"lockstep.model", fmt::format("{}, {}, {} sequence{}", model, name_of(train.dtype),
                                         batch, batch == 1 ? "" : "s")},
          {"lockstep.roofline",
           fmt::format("{:g} TFLOP/s, {:g} GB/s", options.roofline.flops_per_s / 1e12,
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
                                 [&factoring, &options](benchmark::State& state) {
                                   for (auto _ : state)
                                     state.SetIterationTime(factoring.step_seconds);
                                   state.counters["ranks"] = options.ranks;
                                 })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  auto file = run_registered(context_of(options));
  for (std::size_t i = 0; i < written.size(); ++i)
    add_figures(file["benchmarks"][i], *written[i], options);
  file["refused"] = refused;
  if (options.memory_limit) file["memory_limit_bytes"] = *options.memory_limit;
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
