#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/results/bench_formats.h"
#include "bench/results/metrics.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

// Without the variables that do not name a series.
Variables series_of(const Variables& variables) {
  Variables series;
  for (const auto& variable : variables)
    if (variable.first != "bytes" && variable.first != "in_place") series.push_back(variable);
  return series;
}

bool is_collective(const ordered_json& entry) { return entry.contains("busbw_gb_per_s"); }

// The smallest and the largest size of each series out of place.
std::map<Variables, std::pair<double, double>> sizes_of(
    const std::vector<const ordered_json*>& entries) {
  std::map<Variables, std::pair<double, double>> sizes;
  for (const ordered_json* entry : entries) {
    if (!is_collective(*entry) || entry->at("in_place") != 0) continue;
    const double bytes = entry->at("bytes");
    auto& [smallest, largest] =
        sizes.try_emplace(series_of(bench_variables(*entry)), bytes, bytes).first->second;
    smallest = std::min(smallest, bytes), largest = std::max(largest, bytes);
  }
  return sizes;
}

std::string collectives_text(const std::vector<const ordered_json*>& entries) {
  Metric bandwidth("lockstep_bus_bandwidth_bytes_per_second",
                   "Bus bandwidth of a collective at the largest size, out of place."),
      latency("lockstep_latency_seconds",
              "Time of a collective at the smallest size, out of place.");
  std::map<Variables, double> wrong;
  const auto sizes = sizes_of(entries);
  for (const ordered_json* entry : entries) {
    if (!is_collective(*entry)) continue;
    const Variables variables = bench_variables(*entry);
    const Variables series = series_of(variables);
    // Every repetition has the count of all.
    const double not_right = entry->at("wrong");
    if (not_right >= 0 && entry->value("repetition_index", 0) == 0) wrong[series] += not_right;
    const auto found = sizes.find(series);
    if (found == sizes.end() || entry->at("in_place") != 0) continue;
    Variables labels = series;
    labels.emplace_back("bytes", value_of(variables, "bytes"));
    const double bytes = entry->at("bytes");
    if (bytes == found->second.second && bytes > 0)
      bandwidth.add(labels, entry->at("busbw_gb_per_s").get<double>() * 1e9);
    if (bytes == found->second.first) latency.add(labels, entry->at("p50_us").get<double>() / 1e6);
  }
  Metric elements("lockstep_wrong_elements",
                  "Elements of a collective with wrong results, over all sizes and ranks.");
  for (const auto& [series, count] : wrong) elements.add(series, count);
  return bandwidth.text() + latency.text() + elements.text();
}

// Of each algorithm the last point, with all of its repetitions.
std::string techniques_text(const std::vector<const ordered_json*>& entries) {
  std::map<std::pair<std::string, std::string>, Variables> last;
  for (const ordered_json* entry : entries) {
    const Variables variables = bench_variables(*entry);
    last[{value_of(variables, "operation"), value_of(variables, "algorithm")}] = variables;
  }
  Metric steps("lockstep_step_seconds",
               "Time of a technique's step, or of an operation of it, at the last point measured.");
  for (const ordered_json* entry : entries) {
    const Variables variables = bench_variables(*entry);
    const Variables& kept =
        last[{value_of(variables, "operation"), value_of(variables, "algorithm")}];
    if (!is_collective(*entry) && variables == kept && entry->at("real_time").is_number())
      steps.add(variables, entry->at("real_time").get<double>() / 1e6);
  }
  return steps.text();
}

}  // namespace

std::string bench_prometheus(const ordered_json& file) {
  Metric links("lockstep_slow_links", "Hosts and links that are slower than others."),
      verdict("lockstep_burn_in_verdict", "Of a host: 0 pass, 1 degraded, 2 fail.");
  if (file.contains("findings"))
    for (const ordered_json& host : file.at("hosts"))
      verdict.add({{"host", host.at("host")}}, host.at("verdict") == "pass"       ? 0
                                               : host.at("verdict") == "degraded" ? 1
                                                                                  : 2);
  else if (file.contains("slow_links"))
    links.add({}, static_cast<double>(file["slow_links"].size()));
  const auto entries = measured_entries(file);
  const auto environment = parse_json(
      file.at("context").at("lockstep.environment").get<std::string>(), "the environment");
  Metric time("lockstep_run_timestamp_seconds", "When the results were measured, in Unix time."),
      slow("lockstep_slow_ranks", "Ranks that are slower than the others with the same work."),
      explained("lockstep_slow_ranks_explained_ratio",
                "Share of all waiting that the slow ranks explain.");
  const double seconds = unix_seconds(environment.value("time", ""));
  for (const ordered_json* entry : entries) {
    const Variables operation = {{"operation", value_of(bench_variables(*entry), "operation")}};
    time.add(operation, seconds);
    if (!file.contains("slow_ranks")) continue;
    slow.add(operation, static_cast<double>(file["slow_ranks"].at("ranks").size()));
    explained.add(operation, file["slow_ranks"].at("explained_share").get<double>());
  }
  return collectives_text(entries) + techniques_text(entries) + slow.text() + explained.text() +
         links.text() + verdict.text() + time.text();
}

}  // namespace lockstep
