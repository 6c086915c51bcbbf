#include "bench/results/compare_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "bench/results/csv.h"
#include "bench/results/environment.h"
#include "bench/results/junit.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

std::string_view weight_name(Weight weight) {
  return weight == Weight::hardware ? "hardware" : weight == Weight::software ? "software" : "note";
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return lower;
}

// The median in one of the files; none if it lacks the row.
std::optional<double> old_us(const ComparedRow& row) {
  return row.verdict == Verdict::only_new ? std::nullopt : std::optional(row.old_median);
}
std::optional<double> new_us(const ComparedRow& row) {
  return row.verdict == Verdict::only_old ? std::nullopt : std::optional(row.new_median);
}

nlohmann::ordered_json row_json(const ComparedRow& row) {
  nlohmann::ordered_json one = {{"name", row.name}, {"verdict", lower_case(name_of(row.verdict))}};
  if (const auto us = old_us(row)) one["old_us"] = *us;
  if (const auto us = new_us(row)) one["new_us"] = *us;
  if (row.is_in_both()) one["change"] = row.change();
  if (row.rate) one["q"] = *row.rate;
  if (row.rate) one["within"] = row.within;
  if (row.only_faster_half) one["only_faster_half"] = true;
  if (!row.chosen.empty()) one["chosen"] = row.chosen;
  return one;
}

// The columns of CSV besides those of the keys.
constexpr std::string_view columns[] = {"file",   "measurement", "old_us", "new_us",
                                        "change", "q",           "within", "verdict"};

// The parts of a row's name: the keys with their values, and the rest under the empty key.
std::vector<std::pair<std::string, std::string>> variables_of(const std::string& name) {
  std::vector<std::pair<std::string, std::string>> found = {{"", ""}};
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const std::size_t colon = part.find(':');
    const std::string key = part.substr(0, std::min(colon, part.size()));
    const bool is_new = std::ranges::count(found, key, [](const auto& v) { return v.first; }) == 0;
    const bool is_taken = std::ranges::count(columns, key) > 0;
    if (is_new && !is_taken && colon != std::string::npos && colon > 0)
      found.emplace_back(key, part.substr(colon + 1));
    else
      found.front().second += (begin == 0 ? "" : "/") + part;
    begin = end + 1;
  }
  return found;
}

std::string csv_row(const Comparison& comparison, const ComparedRow& row,
                    const std::vector<std::string>& keys) {
  const auto variables = variables_of(row.name);
  std::string line = csv_cell(printable(comparison.new_path));
  for (const std::string& key : keys) {
    const auto found = std::ranges::find(variables, key, [](const auto& v) { return v.first; });
    line += "," + (found == variables.end() ? "" : csv_cell(found->second));
  }
  const auto change = row.is_in_both() ? std::optional(row.change()) : std::nullopt;
  const auto within = row.rate ? std::optional(row.within) : std::nullopt;
  for (const auto& value : {old_us(row), new_us(row), change, row.rate, within})
    line += "," + csv_number(value);
  return line + "," + lower_case(name_of(row.verdict)) + "\n";
}

using Outcome = JunitCase::Outcome;

Outcome outcome_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::same:
    case Verdict::faster:
      return Outcome::passed;
    case Verdict::slower:
    case Verdict::wrong:
      return Outcome::failed;
    case Verdict::unclear:
    case Verdict::too_few_samples:
    case Verdict::only_old:
    case Verdict::only_new:
      return Outcome::skipped;
  }
  return Outcome::failed;
}

JunitCase case_of(const ComparedRow& row) {
  const auto variables = variables_of(row.name);
  std::string name;
  for (const auto& [key, value] : variables)
    if (!key.empty()) name += (name.empty() ? "" : "/") + key + ":" + value;
  std::string message = verdict_text(row);
  if (const auto us = old_us(row)) message += fmt::format(", {:.2f} us before", *us);
  if (const auto us = new_us(row)) message += fmt::format(", {:.2f} us now", *us);
  return {.group = variables[0].second,
          .name = name.empty() ? "time" : name,
          .seconds = row.new_median / 1e6,
          .outcome = outcome_of(row.verdict),
          .type = std::string(name_of(row.verdict)),
          .message = message};
}

JunitSuite suite_of(const Comparison& comparison) {
  JunitSuite suite{.name = comparison.new_path,
                   .properties = {{"compared with", comparison.old_path}},
                   .cases = {}};
  for (const auto& [weight, difference] : comparison.differences)
    suite.properties.emplace_back(weight_name(weight), difference);
  suite.cases.push_back({.group = "compare",
                         .name = "results are right",
                         .outcome = comparison.wrong.empty() ? Outcome::passed : Outcome::failed,
                         .type = "WRONG",
                         .message = fmt::format("{}", fmt::join(comparison.wrong, "; "))});
  for (const ComparedRow& row : comparison.rows) suite.cases.push_back(case_of(row));
  return suite;
}

}  // namespace

std::string compare_json(const std::vector<Comparison>& comparisons, const CompareLimits& limits) {
  nlohmann::ordered_json file = {{"schema", "lockstep.compare/1"},
                                 {"command", command_line()},
                                 {"old", printable(comparisons.front().old_path)},
                                 {"effect", limits.effect},
                                 {"rate", limits.rate},
                                 {"comparisons", nlohmann::ordered_json::array()}};
  for (const Comparison& comparison : comparisons) {
    nlohmann::ordered_json one = {{"new", printable(comparison.new_path)},
                                  {"exact", comparison.is_exact},
                                  {"in_turn", comparison.in_turn},
                                  {"slower", comparison.count(Verdict::slower)},
                                  {"differences", nlohmann::ordered_json::array()},
                                  {"wrong", comparison.wrong},
                                  {"rows", nlohmann::ordered_json::array()}};
    for (const auto& [weight, text] : comparison.differences)
      one["differences"].push_back({{"weight", weight_name(weight)}, {"text", text}});
    for (const ComparedRow& row : comparison.rows) one["rows"].push_back(row_json(row));
    file["comparisons"].push_back(std::move(one));
  }
  return json_text(file);
}

std::string compare_csv(const std::vector<Comparison>& comparisons) {
  std::vector<std::string> keys;
  for (const Comparison& comparison : comparisons)
    for (const ComparedRow& row : comparison.rows)
      for (const auto& [key, value] : variables_of(row.name))
        if (std::ranges::count(keys, key) == 0) keys.push_back(key);
  std::string text = "file";
  for (const std::string& key : keys) text += "," + csv_cell(key.empty() ? "measurement" : key);
  text += ",old_us,new_us,change,q,within,verdict\n";
  for (const Comparison& comparison : comparisons)
    for (const ComparedRow& row : comparison.rows) text += csv_row(comparison, row, keys);
  return text;
}

std::string compare_junit(const std::vector<Comparison>& comparisons) {
  std::vector<JunitSuite> suites;
  for (const Comparison& comparison : comparisons) suites.push_back(suite_of(comparison));
  return junit_text("lockstep compare", suites);
}

}  // namespace lockstep
