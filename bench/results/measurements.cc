#include "bench/results/measurements.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/results/measure.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::string_view bench_schema = "lockstep.bench/1", train_schema = "lockstep.train/1";

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: {}", path, reason),
              {.hint = "name files that bench --json or train --json wrote"});
}

bool is_in(std::string_view key, std::initializer_list<std::string_view> keys) {
  return std::ranges::find(keys, key) != keys.end();
}

double microseconds_per(const std::string& unit) {
  if (unit == "ns") return 1e-3;
  if (unit == "us") return 1;
  if (unit == "ms") return 1e3;
  return 1e6;
}

// Google Benchmark adds how often it measured to the name of what it measured.
std::string without_counts(const std::string& name) {
  std::string kept;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool is_count =
        part.starts_with("iterations:") || part.starts_with("repeats:") || part == "manual_time";
    if (!is_count) kept += (begin == 0 ? "" : "/") + part;
    begin = end + 1;
  }
  return kept;
}

// Returns a value as text for a terminal.
std::string text_of(const json& value) {
  return printable(value.is_string() ? value.get<std::string>() : json_line(value));
}

// {"gpu": {"name": "H100"}} becomes "gpu.name": "H100". Stops at a depth that no result has, as
// printing would recurse.
void flatten(const json& value, const std::string& name, std::map<std::string, std::string>& flat,
             int depth = 0) {
  constexpr int deepest = 8;
  if (!value.is_structured() || depth == deepest) {
    flat[name] = value.is_structured() ? "..." : text_of(value);
    return;
  }
  for (const auto& [key, inner] : value.items())
    flatten(inner, (name.empty() ? "" : name + ".") + printable(key), flat, depth + 1);
}

void read_context(const json& context, Measurements& result) {
  if (context.contains("lockstep.environment"))
    flatten(parse_json(context["lockstep.environment"].get<std::string>(), result.path), "",
            result.environment);
  // Results written before the environment had it.
  if (!result.environment.contains("host") && context.contains("host_name"))
    result.environment["host"] = text_of(context["host_name"]);
  if (!result.environment.contains("time") && context.contains("date"))
    result.environment["time"] = text_of(context["date"]);
  constexpr std::string_view ours = "lockstep.";
  for (const auto& [key, value] : context.items()) {
    if (!key.starts_with(ours)) continue;
    const std::string name = printable(key.substr(ours.size()));
    if (name == "device" || name == "link" || name == "slow_link")
      result.environment[name] = text_of(value);
    else if (name == "in_turn")
      result.in_turn = text_of(value);
    else if (name != "environment" && name != "schema" && name != "command" &&
             name != "memory_bandwidth_bytes_per_s")
      result.settings[name] = text_of(value);
  }
}

// Returns the fault that an entry reports for its result; empty if there is none. Below 0, `wrong`
// was not counted.
std::string fault_of(const json& entry) {
  if (entry.value("error_occurred", false))
    return printable("an error: " + entry.value("error_message", "unknown"));
  const auto wrong = entry.find("wrong");
  return wrong != entry.end() && wrong->get<double>() > 0
             ? fmt::format("{:.0f} elements are wrong", wrong->get<double>())
             : "";
}

// Returns the fault that a training run reports: a loss, or a count that differs from its closed
// form.
std::string fault_of_training(const json& file) {
  for (const json& step : file.at("steps"))
    if (!step.at("loss").is_number())
      return fmt::format("step {}: its loss is not a number", text_of(step.at("step")));
  for (const json& line : file.value("theory", json::array()))
    if (line.at("exact").get<bool>() && line.at("expected") != line.at("measured"))
      return fmt::format("{} of rank {}: {} instead of {}", text_of(line.at("quantity")),
                         text_of(line.at("rank")), text_of(line.at("measured")),
                         text_of(line.at("expected")));
  return "";
}

void read_benchmarks(const json& file, Measurements& result) {
  for (const json& entry : file.at("benchmarks")) {
    if (entry.value("run_type", "iteration") != "iteration") continue;
    const std::string name =
        printable(without_counts(entry.value("run_name", entry.at("name").get<std::string>())));
    if (const std::string fault = fault_of(entry); !fault.empty()) result.wrong[name] = fault;
    // A row that Google Benchmark skipped has no times.
    if (entry.value("error_occurred", false)) continue;
    const double scale = microseconds_per(entry.value("time_unit", "ns"));
    const auto found = entry.find("samples_us");
    const std::vector<double> samples =
        found == entry.end() ? std::vector{entry.at("real_time").get<double>() * scale}
                             : found->get<std::vector<double>>();
    // A simulation without times; a link without cost.
    if (samples.empty() || percentile(samples, 0.5) <= 0) continue;
    MeasuredRow& row = result.rows[name];
    row.repetitions.push_back(percentile(samples, 0.5));
    if (found != entry.end())
      row.iterations.insert(row.iterations.end(), samples.begin(), samples.end());
    if (name.find("/auto/") != std::string::npos) row.chosen = printable(entry.value("label", ""));
  }
}

Measurements of_benchmark(const json& file, const std::string& path) {
  const json& context = file.at("context");
  Measurements result{.path = path,
                      .schema = printable(context.value("lockstep.schema", "Google Benchmark's")),
                      .rows = {},
                      .in_turn = {},
                      .settings = {},
                      .environment = {},
                      .options = {},
                      .wrong = {}};
  read_context(context, result);
  read_benchmarks(file, result);
  result.is_exact = result.settings.contains("clock") && result.settings["clock"] == "unit";
  return result;
}

Measurements of_training(const json& file, const std::string& path) {
  Measurements result{.path = path,
                      .schema = file.at("schema").get<std::string>(),
                      .rows = {},
                      .in_turn = {},
                      .settings = {},
                      .environment = {},
                      .options = {},
                      .wrong = {}};
  const json& config = file.at("config");
  const std::string name =
      fmt::format("train/{}/{}/ranks:{}/step", text_of(config.at("technique")),
                  text_of(config.at("transport")), config.at("ranks").get<int>());
  bool first = true;  // the first step warms up
  for (const json& step : file.at("steps"))
    if (!std::exchange(first, false) && step.at("seconds").get<double>() > 0)
      result.rows[name].repetitions.push_back(step.at("seconds").get<double>() * 1e6);
  if (const std::string fault = fault_of_training(file); !fault.empty()) result.wrong[name] = fault;
  flatten(file.at("environment"), "", result.environment);
  std::map<std::string, std::string> flat;
  flatten(config, "", flat);
  for (const auto& [key, value] : flat) {
    const bool is_setting = is_in(key, {"model", "dtype", "global_batch", "micro_batches",
                                        "sequence_length", "threads", "clock"});
    const bool is_environment = is_in(key, {"device", "link"});
    (is_setting       ? result.settings
     : is_environment ? result.environment
                      : result.options)[key] = value;
  }
  result.is_exact = result.settings["clock"] == "unit";
  return result;
}

Weight weight_of(const std::string& key, bool is_wall) {
  if (is_in(key, {"version", "commit"})) return Weight::note;
  // On the wall clock the link was measured; otherwise it determines the times.
  if (is_in(key, {"link", "slow_link"})) return is_wall ? Weight::note : Weight::hardware;
  if (is_in(key, {"processor", "cores", "memory_bytes", "device", "gpu.name",
                  "gpu.compute_capability", "gpu.multiprocessors", "gpu.memory_bytes"}) ||
      key.starts_with("network."))
    return Weight::hardware;
  return Weight::software;
}

// Both maps' keys with the values that differ.
template <typename Function>
void for_each_difference(const std::map<std::string, std::string>& before,
                         const std::map<std::string, std::string>& after, Function&& report) {
  std::map<std::string, std::string> keys = before;
  keys.insert(after.begin(), after.end());
  const auto value = [](const auto& map, const std::string& key) {
    const auto found = map.find(key);
    return found == map.end() ? std::string("not recorded") : found->second;
  };
  for (const auto& [key, ignored] : keys)
    if (const auto a = value(before, key), b = value(after, key); a != b)
      report(key, fmt::format("{}: {} before, {} now", key, a, b));
}

}  // namespace

bool ByNumbers::operator()(const std::string& a, const std::string& b) const {
  return strverscmp(a.c_str(), b.c_str()) < 0;
}

bool Measurements::is_training() const { return schema == train_schema; }

Measurements measurements_in(std::string_view text, const std::string& path) {
  const json file = parse_json(text, path, most_result_values);
  if (!file.is_object()) refuse(path, "not a JSON object");
  try {
    const std::string schema = file.value("schema", "");
    if (!file.contains("benchmarks") && schema != train_schema)
      refuse(path, fmt::format("its schema '{}' cannot be compared", schema));
    Measurements result =
        file.contains("benchmarks") ? of_benchmark(file, path) : of_training(file, path);
    if (result.rows.empty())
      refuse(path, result.wrong.empty()
                       ? "it holds no measured time"
                       : "it holds no measured time: " + result.wrong.begin()->second);
    return result;
  } catch (const json::exception& error) {
    refuse(path, fmt::format("invalid contents: {}", error.what()));
  }
}

Measurements read_measurements(const std::string& path) {
  return measurements_in(read_text(path, most_result_bytes), path);
}

Measurements read_baseline(const std::string& path) {
  Measurements result = read_measurements(path);
  if (result.schema != bench_schema)
    refuse(path, fmt::format("its schema is {}, but a baseline's must be {}", result.schema,
                             bench_schema));
  return result;
}

std::vector<Difference> differences(const Measurements& before, const Measurements& after) {
  std::vector<Difference> found;
  const bool is_wall = before.settings.contains("clock") && before.settings.at("clock") == "wall";
  for_each_difference(before.environment, after.environment,
                      [&](const std::string& key, const std::string& text) {
                        if (!is_in(key, {"time", "gpu.peak_allocated_bytes", "gpu.cached_bytes"}))
                          found.push_back({weight_of(key, is_wall), text});
                      });
  // A setting that both files name was already refused.
  for_each_difference(before.settings, after.settings, [&](const std::string&, std::string text) {
    found.push_back({Weight::software, std::move(text)});
  });
  for_each_difference(before.options, after.options, [&](const std::string&, std::string text) {
    found.push_back({Weight::note, std::move(text)});
  });
  std::ranges::stable_sort(found, {}, &Difference::weight);
  return found;
}

}  // namespace lockstep
