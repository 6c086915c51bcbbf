#include "bench/results/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/results/measure.h"
#include "bench/results/statistics.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::int64_t most_bytes = std::int64_t{1} << 30;

// The contents of a result file. Samples are in microseconds, by name.
struct Measurements {
  std::string schema;
  Samples samples;
  json environment = json::object();
  std::map<std::string, std::string> settings;  // must be equal in both files
};

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: {}", path, reason),
              {.hint = "name two files that bench --json or train --json wrote"});
}

double microseconds_per(const std::string& unit) {
  if (unit == "ns") return 1e-3;
  if (unit == "us") return 1;
  if (unit == "ms") return 1e3;
  return 1e6;
}

// Repetitions are independent samples; iterations are not quite. With enough repetitions, each
// repetition is one sample.
constexpr std::size_t enough = 5;

Measurements of_benchmark(const json& file) {
  Measurements result{.schema = "lockstep.bench/1", .samples = {}, .settings = {}};
  Samples iterations;
  for (const json& entry : file.at("benchmarks")) {
    if (entry.value("run_type", "iteration") != "iteration") continue;
    const std::string name = entry.value("run_name", entry.at("name").get<std::string>());
    const double scale = microseconds_per(entry.value("time_unit", "ns"));
    const auto found = entry.find("samples_us");
    if (found == entry.end()) {
      result.samples[name].push_back(entry.at("real_time").get<double>() * scale);
      continue;
    }
    const auto samples = found->get<std::vector<double>>();
    if (samples.empty()) continue;
    result.samples[name].push_back(percentile(samples, 0.5));
    iterations[name].insert(iterations[name].end(), samples.begin(), samples.end());
  }
  for (auto& [name, samples] : result.samples)
    if (samples.size() < enough && iterations.contains(name)) samples = iterations[name];
  const json& context = file.at("context");
  if (context.contains("lockstep.environment"))
    result.environment = json::parse(context["lockstep.environment"].get<std::string>());
  for (const char* key : {"lockstep.schema", "lockstep.buffers", "lockstep.clock"})
    if (context.contains(key)) result.settings[key] = context[key].get<std::string>();
  return result;
}

Measurements of_training(const json& file) {
  Measurements result{.schema = "lockstep.train/1", .samples = {}, .settings = {}};
  const json& config = file.at("config");
  const std::string name =
      fmt::format("train/{}/{}/ranks:{}/step", config.at("technique").get<std::string>(),
                  config.at("transport").get<std::string>(), config.at("ranks").get<int>());
  bool first = true;  // the first step warms up
  for (const json& step : file.at("steps"))
    if (!std::exchange(first, false))
      result.samples[name].push_back(step.at("seconds").get<double>() * 1e6);
  result.environment = file.at("environment");
  for (const char* key : {"model", "dtype", "global_batch", "micro_batches", "sequence_length",
                          "threads", "clock", "link"})
    if (config.contains(key)) result.settings[key] = config[key].dump();
  return result;
}

Measurements read(const std::string& path) {
  const json file = json::parse(read_text(path, most_bytes), nullptr, /*allow_exceptions=*/false);
  if (!file.is_object()) refuse(path, "not a JSON object");
  try {
    if (file.contains("benchmarks")) return of_benchmark(file);
    const std::string schema = file.value("schema", "");
    if (schema == "lockstep.train/1") return of_training(file);
    refuse(path, fmt::format("its schema '{}' cannot be compared", schema));
  } catch (const json::exception& error) {
    refuse(path, fmt::format("invalid contents: {}", error.what()));
  }
}

std::vector<std::string> differences(const Measurements& before, const Measurements& after) {
  std::vector<std::string> found;
  for (const char* key : {"processor", "cores", "memory_bytes", "system", "compiler", "build",
                          "mpi", "settings", "cuda_driver", "nccl"}) {
    const json a = before.environment.value(key, json()), b = after.environment.value(key, json());
    if (a != b) found.push_back(fmt::format("{}: {} before, {} now", key, a.dump(), b.dump()));
  }
  return found;
}

ComparedRow row_of(const std::string& name, const std::vector<double>& before,
                   const std::vector<double>& after) {
  ComparedRow row{.name = name};
  row.old_median = percentile(before, 0.5);
  row.new_median = percentile(after, 0.5);
  constexpr std::size_t fewest = 4;
  if (std::min(before.size(), after.size()) < fewest) row.verdict = Verdict::too_few_samples;
  return row;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::same:
      return "same";
    case Verdict::slower:
      return "SLOWER";
    case Verdict::faster:
      return "faster";
    case Verdict::too_few_samples:
      return "too few samples";
    case Verdict::only_old:
      return "gone";
    case Verdict::only_new:
      return "new";
  }
  return "";
}

int Comparison::count(Verdict verdict) const {
  return static_cast<int>(std::ranges::count(rows, verdict, &ComparedRow::verdict));
}

std::vector<ComparedRow> compare_samples(const Samples& before, const Samples& after,
                                         const CompareLimits& limits) {
  std::vector<ComparedRow> rows;
  std::vector<std::size_t> tested;
  std::vector<double> chances;
  for (const auto& [name, samples] : before) {
    const auto found = after.find(name);
    if (found == after.end()) {
      rows.push_back(
          {.name = name, .old_median = percentile(samples, 0.5), .verdict = Verdict::only_old});
      continue;
    }
    rows.push_back(row_of(name, samples, found->second));
    if (rows.back().verdict == Verdict::too_few_samples) continue;
    tested.push_back(rows.size() - 1);
    chances.push_back(std::min(chance_of_being_larger(samples, found->second),
                               chance_of_being_larger(found->second, samples)));
  }
  for (const auto& [name, samples] : after)
    if (!before.contains(name))
      rows.push_back(
          {.name = name, .new_median = percentile(samples, 0.5), .verdict = Verdict::only_new});
  // Two-sided: both directions were tested.
  for (double& chance : chances) chance = std::min(1.0, 2 * chance);
  const auto rates = false_discovery_rates(chances);
  for (std::size_t i = 0; i < tested.size(); ++i) {
    ComparedRow& row = rows[tested[i]];
    row.rate = rates[i];
    if (row.rate > limits.rate || std::abs(row.change()) < limits.effect) continue;
    row.verdict = row.change() > 0 ? Verdict::slower : Verdict::faster;
  }
  return rows;
}

Comparison compare(const std::string& old_path, const std::string& new_path,
                   const CompareLimits& limits) {
  const Measurements before = read(old_path), after = read(new_path);
  if (before.schema != after.schema)
    refuse(new_path, fmt::format("its schema is {}, that of {} is {}", after.schema, old_path,
                                 before.schema));
  for (const auto& [key, value] : before.settings) {
    const auto found = after.settings.find(key);
    const std::string other = found == after.settings.end() ? "not given" : found->second;
    if (other != value)
      refuse(new_path, fmt::format("its {} is {}, that of {} is {}", key, other, old_path, value));
  }
  return {.warnings = differences(before, after),
          .rows = compare_samples(before.samples, after.samples, limits)};
}

void check_baseline(const std::string& path) {
  constexpr std::string_view expected = "lockstep.bench/1";
  const Measurements measurements = read(path);
  const auto found = measurements.settings.find("lockstep.schema");
  const std::string schema =
      found == measurements.settings.end() ? measurements.schema : found->second;
  if (schema != expected)
    refuse(path, fmt::format("its schema is {}, but a baseline's must be {}", schema, expected));
}

std::string text_of(const Comparison& comparison) {
  std::string text;
  for (const std::string& warning : comparison.warnings)
    text += fmt::format("# warning: the environments differ: {}\n", warning);
  text += fmt::format("{:<72}{:>12}{:>12}{:>9}{:>10}  {}\n", "measurement", "old (us)", "new (us)",
                      "change", "q", "verdict");
  for (const ComparedRow& row : comparison.rows)
    text +=
        fmt::format("{:<72}{:>12.2f}{:>12.2f}{:>+8.1f}%{:>10.2g}  {}\n", row.name, row.old_median,
                    row.new_median, row.change() * 100, row.rate, name_of(row.verdict));
  return text + fmt::format("{} slower, {} faster, {} the same, of {}\n",
                            comparison.count(Verdict::slower), comparison.count(Verdict::faster),
                            comparison.count(Verdict::same), comparison.rows.size());
}

std::string markdown_of(const Comparison& comparison) {
  std::string text =
      "| measurement | old (us) | new (us) | change | q | verdict |\n|---|---|---|---|---|---|\n";
  for (const ComparedRow& row : comparison.rows)
    text += fmt::format("| {} | {:.2f} | {:.2f} | {:+.1f} % | {:.2g} | {} |\n", row.name,
                        row.old_median, row.new_median, row.change() * 100, row.rate,
                        name_of(row.verdict));
  for (const std::string& warning : comparison.warnings)
    text += fmt::format("\nThe environments differ: {}\n", warning);
  return text;
}

}  // namespace lockstep
