#include "parallel/planner/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t most_table_bytes = 16 << 20;
constexpr double bytes_of_gib = 1024.0 * 1024 * 1024;

// A row of the table as a case, and what else the score needs of it.
struct TableRow {
  ScoredRow scored;
  PlanCase plan_case;
  bool pairs = false;
  std::vector<double> measured_gib;
  std::vector<std::pair<std::string, PlanCase>> alternatives;

  bool is_predicted() const { return scored.refused.empty(); }
};

ordered_json without(ordered_json entry, std::initializer_list<const char*> keys) {
  for (const char* key : keys) entry.erase(key);
  return entry;
}

// The extra keys of a row. Throws Error (bad_input) that names the row.
void read_extras(const ordered_json& entry, const ordered_json& plain, PlannerFiles& files,
                 TableRow& row) {
  const auto expect = [&](bool holds, std::string_view what) {
    require(holds, [&] { return fmt::format("{}: {}", printable(row.scored.name), what); });
  };
  if (entry.contains("pairs")) {
    expect(entry["pairs"].is_boolean(), "\"pairs\" is not true or false");
    row.pairs = entry["pairs"];
  }
  if (entry.contains("measured_gib")) {
    const ordered_json& gib = entry["measured_gib"];
    expect(gib.is_array() && gib.size() == 2 && gib[0].is_number() && gib[1].is_number() &&
               gib[0] > 0 && gib[1] > 0,
           "\"measured_gib\" is not two positive numbers, of the first and the last rank");
    row.measured_gib = gib.get<std::vector<double>>();
  }
  if (!entry.contains("alternatives")) return;
  expect(entry["alternatives"].is_array(), "\"alternatives\" is not a list");
  for (const ordered_json& other : entry["alternatives"]) {
    expect(other.is_object() && other.contains("plan") && other["plan"].is_object() &&
               other.contains("why") && other["why"].is_string(),
           R"(an alternative is not {"why": TEXT, "plan": {...}})");
    ordered_json changed = plain;
    changed["plan"].update(other["plan"]);
    row.alternatives.emplace_back(other["why"].get<std::string>(),
                                  read_case(changed, row.scored.name, files));
  }
}

TableRow read_row(const ordered_json& entry, PlannerFiles& files, const std::string& path) {
  TableRow row;
  require(entry.is_object() && entry.contains("name") && entry["name"].is_string(),
          [&] { return fmt::format("{}: a row has no name", printable(path)); });
  row.scored.name = entry["name"];
  const ordered_json plain = without(entry, {"pairs", "measured_gib", "alternatives"});
  try {
    row.plan_case = read_case(plain, row.scored.name, files);
    require(
        row.plan_case.measured_seconds.has_value(),
        [&] { return fmt::format("{}: nothing was measured", printable(row.scored.name)); },
        "give measured_seconds or measured_tflops_per_gpu");
  } catch (const Error& error) {
    row.scored.refused = refusal(error);
    return row;
  }
  row.scored.calibrates = row.plan_case.calibrates;
  row.scored.measured_seconds = *row.plan_case.measured_seconds;
  read_extras(entry, plain, files, row);
  return row;
}

std::vector<PlanCase*> cases_of(std::vector<TableRow>& rows) {
  std::vector<PlanCase*> cases;
  for (TableRow& row : rows)
    if (row.is_predicted()) cases.push_back(&row.plan_case);
  return cases;
}

// The rate in FLOP/s of a GPU that is nearest to those of the rows that calibrate a group.
double constant_rate(const std::vector<TableRow>& rows, const std::string& group) {
  double sum = 0, squares = 0;
  for (const TableRow& row : rows) {
    const PlanCase& c = row.plan_case;
    if (!row.is_predicted() || !c.calibrates || c.calibration_group != group) continue;
    const double seconds_of_flop =
        row.scored.measured_seconds * c.arrangement.gpus / hardware_flops(c.model, c.arrangement);
    sum += seconds_of_flop, squares += seconds_of_flop * seconds_of_flop;
  }
  return squares > 0 ? sum / squares : 0;
}

double rate_error(const PlanCase& c, double predicted_seconds) {
  return *c.measured_seconds / predicted_seconds - 1;
}

void score_row(TableRow& row, double constant) {
  ScoredRow& scored = row.scored;
  const PlanCase& c = row.plan_case;
  const StepPrediction prediction = predict_step(c);
  scored.seconds = prediction.seconds;
  scored.error = rate_error(c, prediction.seconds);
  if (constant > 0)
    scored.constant_error =
        rate_error(c, hardware_flops(c.model, c.arrangement) / (constant * c.arrangement.gpus));
  if (row.measured_gib.size() == 2)
    scored.memory_errors = {
        prediction.memory.front().total() / (row.measured_gib[0] * bytes_of_gib) - 1,
        prediction.memory.back().total() / (row.measured_gib[1] * bytes_of_gib) - 1};
  for (auto& [why, other] : row.alternatives) {
    other.profile = c.profile;
    scored.alternatives.emplace_back(why, rate_error(c, predict_step(other).seconds));
  }
}

// The mean held-out error for each pair of rows that may calibrate.
std::optional<Errors> score_pairs(const std::vector<TableRow>& rows) {
  std::vector<std::size_t> candidates;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].pairs && rows[i].is_predicted()) candidates.push_back(i);
  if (candidates.size() < 3) return {};
  std::vector<double> means;
  for (std::size_t a = 0; a < candidates.size(); ++a)
    for (std::size_t b = a + 1; b < candidates.size(); ++b) {
      std::vector<TableRow> trial = rows;
      for (std::size_t i = 0; i < trial.size(); ++i)
        trial[i].plan_case.calibrates = i == candidates[a] || i == candidates[b];
      calibrate(cases_of(trial));
      std::vector<double> held_out;
      for (const TableRow& row : trial)
        if (row.is_predicted() && !row.plan_case.calibrates)
          held_out.push_back(rate_error(row.plan_case, predict_step(row.plan_case).seconds));
      means.push_back(errors_of(held_out).mean);
    }
  return errors_of(means);
}

void compare_with_goals(const ordered_json& goals, const std::string& path, TableScore& score) {
  const std::map<std::string, double> reached = {
      {"mean", score.held_out.mean},
      {"median", score.held_out.median},
      {"worst", score.held_out.worst},
      {"skill", score.skill()},
      {"pairs_median", score.pairs ? score.pairs->median : 0},
      {"pairs_worst", score.pairs ? score.pairs->worst : 0},
      {"memory_mean", score.memory.mean},
      {"memory_worst", score.memory.worst}};
  for (const auto& [name, goal] : goals.items()) {
    const auto found = reached.find(name);
    require(
        found != reached.end() && goal.is_number(),
        [&, &key = name] {
          return fmt::format("{}: an unknown goal \"{}\"", printable(path), printable(key));
        },
        "goals are mean, median, worst, skill, pairs_median, pairs_worst, memory_mean, "
        "memory_worst");
    require(!name.starts_with("pairs") || score.pairs, [&] {
      return fmt::format("{}: fewer than three rows have \"pairs\"", printable(path));
    });
    require(!name.starts_with("memory") || score.memory.count > 0,
            [&] { return fmt::format("{}: no row has \"measured_gib\"", printable(path)); });
    if (found->second > goal.get<double>())
      score.missed.push_back(
          fmt::format("{} {:.4f} > {:.4f}", name, found->second, goal.get<double>()));
  }
}

}  // namespace

Errors errors_of(std::vector<double> values) {
  Errors errors{.count = static_cast<int>(values.size())};
  if (values.empty()) return errors;
  for (double& value : values) {
    value = std::abs(value);
    errors.mean += value / static_cast<double>(values.size());
  }
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  errors.median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  errors.worst = values.back();
  return errors;
}

TableScore score_table(const std::string& path, const std::string& planner_folder) {
  const ordered_json file = read_json<ordered_json>(path, most_table_bytes);
  require(
      file.is_object() && file.contains("schema") && file["schema"] == "lockstep.table/1" &&
          file.contains("name") && file["name"].is_string() && file.contains("source") &&
          file["source"].is_string() && file.contains("noise") && file["noise"].is_number() &&
          file.contains("goals") && file["goals"].is_object() && file.contains("rows") &&
          file["rows"].is_array(),
      [&] { return fmt::format("{}: not a table of measured steps", printable(path)); },
      R"(give {"schema": "lockstep.table/1", "name", "source", "noise", "goals", "rows"})");
  TableScore score{.name = file["name"], .source = file["source"], .noise = file["noise"]};
  PlannerFiles files(planner_folder);
  std::vector<TableRow> rows;
  for (const ordered_json& entry : file["rows"]) rows.push_back(read_row(entry, files, path));
  score.pairs = score_pairs(rows);
  calibrate(cases_of(rows));
  std::vector<double> held_out, constant, memory;
  for (TableRow& row : rows) {
    if (row.is_predicted()) {
      score_row(row, constant_rate(rows, row.plan_case.calibration_group));
      if (!row.scored.calibrates) {
        held_out.push_back(row.scored.error);
        constant.push_back(row.scored.constant_error);
      }
      memory.insert(memory.end(), row.scored.memory_errors.begin(), row.scored.memory_errors.end());
    }
    score.rows.push_back(row.scored);
  }
  require(
      !held_out.empty(), [&] { return fmt::format("{}: no row is held out", printable(path)); },
      "rows that calibrate say nothing of the model");
  score.held_out = errors_of(held_out);
  score.constant = errors_of(constant);
  score.memory = errors_of(memory);
  compare_with_goals(file["goals"], path, score);
  return score;
}

ordered_json score_json(const TableScore& score) {
  const auto errors = [](const Errors& e) {
    return ordered_json{
        {"count", e.count}, {"mean", e.mean}, {"median", e.median}, {"worst", e.worst}};
  };
  ordered_json table = {{"name", score.name},
                        {"source", score.source},
                        {"noise", score.noise},
                        {"held_out", errors(score.held_out)},
                        {"constant", errors(score.constant)},
                        {"skill", score.skill()}};
  if (score.pairs) table["pairs"] = errors(*score.pairs);
  if (score.memory.count > 0) table["memory"] = errors(score.memory);
  table["missed"] = score.missed;
  table["rows"] = ordered_json::array();
  for (const ScoredRow& row : score.rows) {
    ordered_json entry = {{"name", row.name}};
    if (!row.refused.empty()) {
      entry["refused"] = row.refused;
    } else {
      entry.update({{"calibrates", row.calibrates},
                    {"seconds", row.seconds},
                    {"measured_seconds", row.measured_seconds},
                    {"error", row.error},
                    {"constant_error", row.constant_error}});
      if (!row.memory_errors.empty()) entry["memory_errors"] = row.memory_errors;
      for (const auto& [why, error] : row.alternatives)
        entry["alternatives"].push_back({{"why", why}, {"error", error}});
    }
    table["rows"].push_back(std::move(entry));
  }
  return table;
}

}  // namespace lockstep
