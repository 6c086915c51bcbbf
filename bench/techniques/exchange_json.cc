// The results of the benchmark of exchanges as a file.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/results/registered.h"
#include "bench/techniques/exchange.h"
#include "collectives/base/json_text.h"
#include "collectives/base/links.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

std::string name_of(const ExchangePoint& p) {
  return fmt::format("exchange/{}/link:{}/ranks:{}", p.method, p.link, p.ranks);
}

void add_figures(ordered_json& entry, const ExchangePoint& p) {
  entry["method"] = p.method;
  entry["link"] = p.link;
  entry["ranks"] = p.ranks;
  const Link link = parse_links(p.link).between;
  entry["latency_seconds"] = link.alpha_s;
  entry["bytes_per_second"] = 1 / link.beta_s_per_byte;  // null if bytes take no time
  entry["gradient_bytes"] = p.gradient_bytes;
  entry["message_bytes"] = p.message_bytes;
  entry["messages"] = p.messages;
  entry["processor_seconds"] = p.processor_seconds;
  entry["link_seconds"] = p.link_seconds;
}

ordered_json crossovers_json(const std::vector<ExchangeCrossover>& crossovers) {
  ordered_json all = ordered_json::array();
  for (const ExchangeCrossover& c : crossovers) {
    ordered_json& entry = all.emplace_back();
    entry["method"] = c.method;
    entry["ranks"] = c.ranks;
    entry["latency_seconds"] = c.latency_seconds;
    entry["is_faster"] = c.is_faster;
    if (c.bytes_per_second) entry["bytes_per_second"] = *c.bytes_per_second;
  }
  return all;
}

ordered_json trainings_json(const std::vector<ExchangeTraining>& trainings) {
  ordered_json all = ordered_json::array();
  for (const ExchangeTraining& t : trainings) {
    if (!t.skipped.empty()) continue;
    all.push_back({{"method", t.method},
                   {"ranks", t.ranks},
                   {"sent_bytes", t.sent_bytes},
                   {"error", t.error},
                   {"losses", t.losses},
                   {"validation_losses", t.validation_losses}});
  }
  return all;
}

// For a config.json, the name without folder and ending.
std::string model_name(const std::string& model) {
  const std::filesystem::path path(model);
  return path.extension() == ".json" ? path.stem().string() : model;
}

}  // namespace

std::string exchange_json(const ExchangeBench& bench,
                          const std::vector<ExchangeTraining>& trainings,
                          const ExchangeBenchOptions& options) {
  std::vector<const ExchangePoint*> written;
  for (const ExchangePoint& point : bench.points) {
    if (!point.skipped.empty()) continue;
    written.push_back(&point);
    benchmark::RegisterBenchmark(name_of(point).c_str(),
                                 [&point](benchmark::State& state) {
                                   for (auto _ : state) state.SetIterationTime(point.seconds());
                                 })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  auto file = run_registered({{"lockstep.clock", std::string(lockstep::name_of(Clock::unit))},
                              {"lockstep.model", model_name(options.train.model)}});
  for (std::size_t i = 0; i < written.size(); ++i) add_figures(file["benchmarks"][i], *written[i]);
  file["exchange_crossovers"] = crossovers_json(bench.crossovers);
  if (!trainings.empty()) file["exchange_trainings"] = trainings_json(trainings);
  return json_text(file);
}

}  // namespace lockstep
