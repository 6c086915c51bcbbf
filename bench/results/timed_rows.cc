#include "bench/results/timed_rows.h"

#include <benchmark/benchmark.h>

#include <nlohmann/json.hpp>

#include "bench/results/measure.h"
#include "bench/results/registered.h"

namespace lockstep {
namespace {

void report(benchmark::State& state, const TimedRow& row) {
  std::size_t i = 0;
  for (auto _ : state) state.SetIterationTime((*row.seconds)[i++]);
  for (const auto& [name, value] : row.counters) state.counters[name] = value;
  state.counters["min_us"] = percentile(*row.seconds, 0) * 1e6;
  state.counters["p50_us"] = percentile(*row.seconds, 0.5) * 1e6;
}

}  // namespace

nlohmann::ordered_json timed_rows_json(const std::vector<TimedRow>& rows,
                                       const std::map<std::string, std::string>& context) {
  for (const TimedRow& row : rows)
    benchmark::RegisterBenchmark(row.name.c_str(),
                                 [&row](benchmark::State& state) { report(state, row); })
        ->UseManualTime()
        ->Iterations(std::ssize(*row.seconds))
        ->Unit(benchmark::kMicrosecond);
  auto file = run_registered(context);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& samples = file["benchmarks"][i]["samples_us"] = nlohmann::ordered_json::array();
    for (const double seconds : *rows[i].seconds) samples.push_back(seconds * 1e6);
  }
  return file;
}

}  // namespace lockstep
