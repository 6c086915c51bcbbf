#include "bench/results/compare_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "bench/results/environment.h"
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

// As RFC 4180 quotes it.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
  return quoted + "\"";
}

std::string csv_number(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
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

enum class Outcome { passed, failed, skipped };

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

std::string junit_case(const ComparedRow& row) {
  const auto variables = variables_of(row.name);
  std::string name;
  for (const auto& [key, value] : variables)
    if (!key.empty()) name += (name.empty() ? "" : "/") + key + ":" + value;
  std::string text = fmt::format(R"(    <testcase classname="{}" name="{}" time="{:.9f}")",
                                 html_text(variables[0].second),
                                 html_text(name.empty() ? "time" : name), row.new_median / 1e6);
  const std::string verdict(name_of(row.verdict));
  std::string message = verdict_text(row);
  if (const auto us = old_us(row)) message += fmt::format(", {:.2f} us before", *us);
  if (const auto us = new_us(row)) message += fmt::format(", {:.2f} us now", *us);
  switch (outcome_of(row.verdict)) {
    case Outcome::passed:
      return text + "/>\n";
    case Outcome::failed:
      return text + fmt::format("><failure type=\"{}\" message=\"{}\"/></testcase>\n", verdict,
                                html_text(message));
    case Outcome::skipped:
      return text + fmt::format("><skipped message=\"{}\"/></testcase>\n", html_text(message));
  }
  return text;
}

std::string junit_suite(const Comparison& comparison) {
  const auto count = [&](Outcome outcome) {
    return std::ranges::count_if(comparison.rows, [&](const ComparedRow& row) {
      return outcome_of(row.verdict) == outcome;
    });
  };
  double seconds = 0;
  for (const ComparedRow& row : comparison.rows) seconds += row.new_median / 1e6;
  std::string text = fmt::format(
      "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" "
      "time=\"{:.9f}\">\n"
      "    <properties>\n      <property name=\"compared with\" value=\"{}\"/>\n",
      html_text(comparison.new_path), comparison.rows.size() + 1,
      count(Outcome::failed) + (comparison.wrong.empty() ? 0 : 1), count(Outcome::skipped), seconds,
      html_text(comparison.old_path));
  for (const auto& [weight, difference] : comparison.differences)
    text += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", weight_name(weight),
                        html_text(difference));
  text += "    </properties>\n    <testcase classname=\"compare\" name=\"results are right\"";
  text += comparison.wrong.empty() ? "/>\n" : "><failure type=\"WRONG\" message=\"";
  for (const std::string& wrong : comparison.wrong) text += html_text(wrong) + "; ";
  if (!comparison.wrong.empty()) text += "\"/></testcase>\n";
  for (const ComparedRow& row : comparison.rows) text += junit_case(row);
  return text + "  </testsuite>\n";
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
  std::string text =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"lockstep compare\">\n";
  for (const Comparison& comparison : comparisons) text += junit_suite(comparison);
  return text + "</testsuites>\n";
}

}  // namespace lockstep
