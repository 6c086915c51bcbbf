#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/results/registered.h"
#include "bench/techniques/attention.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

void report(benchmark::State& state, const AttentionPoint& point) {
  for (auto _ : state) state.SetIterationTime(point.forward_seconds + point.backward_seconds);
  state.counters["length"] = static_cast<double>(point.length);
  state.counters["threads"] = point.threads;
  state.counters["forward_seconds"] = point.forward_seconds;
  state.counters["backward_seconds"] = point.backward_seconds;
  state.counters["forward_gflop_per_s"] = point.forward_flops / point.forward_seconds / 1e9;
  state.counters["backward_gflop_per_s"] = point.backward_flops / point.backward_seconds / 1e9;
  if (point.kept_bytes < 0) return;
  state.counters["kept_bytes"] = point.kept_bytes;
  state.counters["working_bytes"] = point.working_bytes;
}

}  // namespace

std::string attention_json(const std::vector<AttentionPoint>& points,
                           const AttentionBenchOptions& options) {
  std::vector<std::string> kernels;
  for (const AttentionPoint& point : points) {
    if (!point.skipped.empty()) continue;
    kernels.push_back(point.kernel);
    benchmark::RegisterBenchmark(
        fmt::format("attention/{}/length:{}/threads:{}", point.kernel, point.length, point.threads)
            .c_str(),
        [&point](benchmark::State& state) { report(state, point); })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  auto file = run_registered(
      {{"lockstep.attention",
        fmt::format("{} heads of {}, {} of keys and values, {} sequence{}, {}", options.heads,
                    options.head_size, options.kv_heads > 0 ? options.kv_heads : options.heads,
                    options.sequences, options.sequences == 1 ? "" : "s",
                    name_of(options.dtype))}});
  for (std::size_t i = 0; i < kernels.size(); ++i) file["benchmarks"][i]["kernel"] = kernels[i];
  return json_text(file);
}

}  // namespace lockstep
