// The results of the benchmark of dispatchers as a file.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/results/registered.h"
#include "bench/techniques/moe_pairs.h"
#include "collectives/base/json_text.h"
#include "collectives/base/links.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

std::string name_of(const MoePoint& p) {
  return fmt::format("moe/{}/link:{}/skew:{}/tokens:{}/per_token:{}/ranks:{}", p.method, p.link,
                     p.skew, p.tokens, p.per_token, p.ranks);
}

// Of points, crossovers and prices.
template <typename Setting>
void add_setting(ordered_json& entry, const Setting& of) {
  entry["method"] = of.method;
  entry["skew"] = of.skew;
  entry["link"] = of.link;
  entry["ranks"] = of.ranks;
  entry["per_token"] = of.per_token;
  entry["tokens"] = of.tokens;
}

void add_figures(ordered_json& entry, const MoePoint& p) {
  add_setting(entry, p);
  entry["latency_seconds"] = parse_links(p.link).between.alpha_s;
  entry["counts_seconds"] = p.counts_seconds;
  entry["dispatch_seconds"] = p.dispatch_seconds;
  entry["combine_seconds"] = p.combine_seconds;
  if (p.expected_dispatch_seconds)
    entry["expected_dispatch_seconds"] = *p.expected_dispatch_seconds;
  entry["dispatch_bytes"] = p.sent_bytes;
  entry["mean_dispatch_bytes"] = p.mean_sent_bytes;
  entry["dispatch_messages"] = p.messages;
  entry["dropped_share"] = p.dropped_share;
}

ordered_json crossovers_json(const std::vector<MoePoint>& points, const MoeBenchOptions& options) {
  ordered_json all = ordered_json::array();
  for (const MoeCrossover& c : moe_crossovers(points, options)) {
    ordered_json& entry = all.emplace_back();
    add_setting(entry, c);
    entry["over"] = c.over;
    entry["at"] = c.at;
    entry["is_faster_above"] = c.is_faster_above;
    if (c.expected) entry["expected"] = *c.expected;
  }
  return all;
}

ordered_json prices_json(const std::vector<MoePoint>& points) {
  ordered_json all = ordered_json::array();
  for (const MoePrice& price : prices_of_skew(points)) {
    ordered_json& entry = all.emplace_back();
    add_setting(entry, price);
    entry["times"] = price.times;
  }
  return all;
}

ordered_json pairs_json(const std::vector<MoePairPoint>& pairs) {
  ordered_json all = ordered_json::array();
  for (const MoePairPoint& p : pairs) {
    if (!p.skipped.empty()) continue;
    ordered_json& entry = all.emplace_back();
    entry["skew"] = p.skew;
    entry["link"] = p.link;
    entry["ranks"] = p.ranks;
    entry["per_token"] = p.per_token;
    entry["tokens"] = p.tokens;
    entry["bytes_per_second"] = p.bytes_per_second;
    const auto add_step = [&](const char* name, const MoePairStep& step) {
      entry[name] = {{"seconds", step.seconds},
                     {"tokens_per_second", p.tokens_per_second(step)},
                     {"exposed_seconds", step.exposed_seconds},
                     {"peak_bytes", step.peak_bytes}};
    };
    add_step("one_by_one", p.one_by_one);
    add_step("in_turns", p.in_turns);
  }
  return all;
}

}  // namespace

std::string moe_json(const std::vector<MoePoint>& points, const MoeBenchOptions& options,
                     const std::vector<MoePairPoint>& pairs) {
  std::vector<const MoePoint*> written;
  for (const MoePoint& point : points) {
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
  auto file = run_registered(
      {{"lockstep.clock", std::string(lockstep::name_of(Clock::unit))},
       {"lockstep.model",
        fmt::format("{} experts, rows of {} {}, padded to {:g} times the mean", options.experts,
                    options.width, lockstep::name_of(options.dtype), options.capacity)}});
  for (std::size_t i = 0; i < written.size(); ++i) add_figures(file["benchmarks"][i], *written[i]);
  file["moe_crossovers"] = crossovers_json(points, options);
  file["moe_prices"] = prices_json(points);
  if (!pairs.empty()) file["moe_pairs"] = pairs_json(pairs);
  return json_text(file);
}

}  // namespace lockstep
