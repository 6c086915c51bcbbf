#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/collectives/collective.h"
#include "bench/collectives/rank_rows.h"
#include "bench/results/environment.h"
#include "bench/results/registered.h"
#include "collectives/all_to_all_v/all_to_all_v.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

std::string name_of(const BenchResult& r, const OperationEntry& entry, const BenchRun& run,
                    const BenchOptions& options) {
  std::string name = fmt::format("{}/{}/{}/ranks:{}/bytes:{:.0f}/in_place:{}/type:{}", entry.name,
                                 r.algorithm, r.transport, r.problem.ranks, r.problem.bytes(),
                                 r.in_place ? 1 : 0, name_of(r.dtype));
  if (entry.reduces) name += fmt::format("/redop:{}", r.reduction());
  if (entry.has_root) name += fmt::format("/root:{}", r.problem.root);
  if (entry.operation == Operation::all_to_all_v)
    name += fmt::format("/skew:{}", options.skew.name);
  if (options.offset > 0) name += fmt::format("/unalign:{}", options.offset);
  if (options.blocks.are_apart()) name += fmt::format("/blocks:{}", options.blocks.name());
  if (options.communicators > 1) name += fmt::format("/communicators:{}", options.communicators);
  if (!run.split.empty()) name += fmt::format("/split:{}", run.split);
  return name;
}

// The samples of one repetition.
std::vector<double> repetition_of(const BenchResult& result, int repetition, int iterations) {
  const auto begin = result.seconds.begin() + static_cast<std::ptrdiff_t>(repetition) * iterations;
  return {begin, begin + iterations};
}

// Passes one repetition's samples to Google Benchmark, which computes and writes statistics.
void report(benchmark::State& state, const BenchResult& result, Operation operation,
            const std::vector<double>& seconds) {
  std::size_t i = 0;
  for (auto _ : state) state.SetIterationTime(seconds[i++]);
  BenchResult repetition = result;
  repetition.seconds = seconds;
  state.counters["ranks"] = result.problem.ranks;
  state.counters["bytes"] = result.problem.bytes();
  state.counters["in_place"] = result.in_place;
  state.counters["algbw_gb_per_s"] = repetition.algbw_gb_per_s();
  state.counters["busbw_gb_per_s"] = repetition.busbw_gb_per_s(operation);
  state.counters["wrong"] = result.wrong;
  if (result.communicators > 1) state.counters["communicators"] = result.communicators;
  if (operation == Operation::all_to_all_v) {
    const Busiest most = busiest(result.problem);
    state.counters["busiest_rank"] = most.rank;
    state.counters["busiest_bytes"] =
        static_cast<double>(most.elements * result.problem.element_bytes);
  }
  state.counters["min_us"] = percentile(seconds, 0) * 1e6;
  state.counters["p50_us"] = percentile(seconds, 0.5) * 1e6;
  // With fewer samples, these would be the maximum.
  constexpr std::size_t enough_for_p90 = 10, enough_for_p99 = 100;
  if (seconds.size() >= enough_for_p90) state.counters["p90_us"] = percentile(seconds, 0.9) * 1e6;
  if (seconds.size() >= enough_for_p99) state.counters["p99_us"] = percentile(seconds, 0.99) * 1e6;
  state.counters["max_us"] = percentile(seconds, 1) * 1e6;
  state.counters["copy_us"] = result.copy_seconds * 1e6;
  state.counters["model_us"] = result.model.seconds * 1e6;
  state.counters["model_is_exact"] = result.model.is_exact;
  state.SetLabel(result.chosen);
}

// The rate of copying the largest message, which fits the caches least: the reference line of the
// bandwidth plot.
double memory_bandwidth(const BenchRun& run) {
  const auto largest = std::ranges::max_element(
      run.results, {}, [](const BenchResult& r) { return r.problem.bytes(); });
  if (largest == run.results.end() || largest->copy_seconds <= 0) return 0;
  constexpr int read_and_write = 2;
  return read_and_write * largest->problem.bytes() * largest->problem.ranks / largest->copy_seconds;
}

}  // namespace

std::string bench_json(const BenchRun& run, const OperationEntry& entry,
                       const BenchOptions& options, const LaunchOptions& world) {
  std::vector<std::string> names;
  for (const BenchResult& result : run.results) {
    names.push_back(name_of(result, entry, run, options));
    auto repetition = std::make_shared<int>(0);
    benchmark::RegisterBenchmark(names.back().c_str(),
                                 [&result, &options, &entry, repetition](benchmark::State& state) {
                                   report(
                                       state, result, entry.operation,
                                       repetition_of(result, (*repetition)++, options.iterations));
                                 })
        ->UseManualTime()
        ->Iterations(options.iterations)
        ->Repetitions(options.repetitions)
        ->Unit(benchmark::kMicrosecond);
  }
  auto environment = environment_json(world.device);
  if (!run.library.empty()) environment["mpi"] = run.library;
  std::map<std::string, std::string> context = {
      {"lockstep.environment", json_line(environment)},
      {"lockstep.memory_bandwidth_bytes_per_s", fmt::format("{:.6g}", memory_bandwidth(run))},
      {"lockstep.buffers", std::string(name_of(options.buffers))},
      {"lockstep.checks", std::to_string(options.checks)},
      {"lockstep.average", std::to_string(static_cast<int>(options.whose))},
      {"lockstep.operations_per_iteration", std::to_string(options.operations_per_iteration)},
      {"lockstep.clock", std::string(name_of(world.clock))},
      {"lockstep.device", std::string(options.device->name())},
      {"lockstep.link", text_of(run.links)}};
  if (options.cold)
    context.emplace("lockstep.cold_start_us", fmt::format("{}", run.cold_seconds * 1e6));
  if (options.table.least_busbw)
    context.emplace("lockstep.min_busbw_gb_per_s", fmt::format("{}", *options.table.least_busbw));

  // Google Benchmark keeps no samples; readers of its format ignore unknown keys.
  auto file = run_registered(context);
  auto result = run.results.begin();
  for (auto& written : file["benchmarks"]) {
    if (written["run_type"] != "iteration") continue;
    const int repetition = written["repetition_index"];
    auto& samples = written["samples_us"] = nlohmann::ordered_json::array();
    for (const double seconds : repetition_of(*result, repetition, options.iterations))
      samples.push_back(seconds * 1e6);
    if (repetition + 1 == options.repetitions) ++result;
  }
  if (options.table.memory)
    file["memory"] = {{"initial_bytes", run.memory.initial},
                      {"buffer_bytes", run.memory.buffers},
                      {"peak_bytes", run.memory.peak}};
  add_ranks(file, run, world, names);
  return json_text(file);
}

}  // namespace lockstep
