#include "bench/results/train_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/results/bench_formats.h"
#include "bench/results/csv.h"
#include "bench/results/metrics.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

Variables variables_of_run(const ordered_json& file) {
  const ordered_json& config = file.at("config");
  return {{"operation", "train"},
          {"algorithm", config.at("technique").get<std::string>()},
          {"transport", config.at("transport").get<std::string>()},
          {"ranks", std::to_string(config.at("ranks").get<int>())}};
}

bool differs(const ordered_json& line) {
  return line.at("exact").get<bool>() && line.at("expected") != line.at("measured");
}

std::vector<JunitCase> cases_of_theory(const ordered_json& theory) {
  std::vector<JunitCase> cases;
  for (const ordered_json& line : theory) {
    if (!line.at("exact").get<bool>()) continue;
    const std::string quantity = line.at("quantity");
    auto found = std::ranges::find(cases, quantity, &JunitCase::name);
    if (found == cases.end())
      found = cases.insert(found, {.group = "theory", .name = quantity, .type = "WRONG"});
    if (!differs(line)) continue;
    found->outcome = JunitCase::Outcome::failed;
    found->message +=
        fmt::format("{}rank {} measured {}, the closed form says {}",
                    found->message.empty() ? "" : "; ", line.at("rank").get<int>(),
                    line.at("measured").get<double>(), line.at("expected").get<double>());
  }
  return cases;
}

JunitCase case_of_lost_ranks(const ordered_json& lost) {
  JunitCase one{.group = "ranks", .name = "no rank was lost", .type = "LOST"};
  for (const ordered_json& rank : lost)
    one.message += fmt::format("{}rank {} in step {}: {}", one.message.empty() ? "" : "; ",
                               rank.at("rank").get<int>(), rank.at("step").get<int>(),
                               rank.at("why").get<std::string>());
  one.outcome = one.message.empty() ? JunitCase::Outcome::passed : JunitCase::Outcome::failed;
  return one;
}

}  // namespace

std::string train_csv(const ordered_json& file) {
  CsvTable table;
  for (const ordered_json& step : file.at("steps")) {
    CsvCells variables, measured;
    for (const auto& [key, value] : variables_of_run(file))
      variables.emplace_back(key, csv_cell(printable(value)));
    for (const auto& [key, value] : step.items()) {
      if (value.is_array()) continue;
      // A norm that is not finite is null.
      const std::string cell = value.is_null()           ? ""
                               : value.is_number_float() ? csv_number(value.get<double>())
                                                         : json_line(value);
      (key == "step" ? variables : measured).emplace_back(key, cell);
    }
    table.add(std::move(variables), std::move(measured));
  }
  return table.text();
}

std::string train_junit(const ordered_json& file) {
  const ordered_json& environment = file.at("environment");
  JunitSuite suite{.name = "train", .properties = {}, .cases = cases_of_theory(file.at("theory"))};
  for (const auto& [key, value] : variables_of_run(file)) suite.properties.emplace_back(key, value);
  for (const char* key : {"command", "time", "host", "processor", "version", "commit"})
    suite.properties.emplace_back(key, environment.value(key, ""));
  if (file.contains("slow_ranks")) suite.cases.push_back(case_of_ranks(file["slow_ranks"]));
  suite.cases.push_back(case_of_lost_ranks(file.value("lost", ordered_json::array())));
  return junit_text("lockstep train", {suite});
}

std::string train_prometheus(const ordered_json& file) {
  const Variables labels = variables_of_run(file);
  Metric loss("lockstep_train_loss", "Of the last step, nats."),
      steps("lockstep_step_seconds",
            "Time of a technique's step, or of an operation of it, at the last point measured."),
      wrong("lockstep_theory_mismatches", "Numbers that differ from their closed forms."),
      slow("lockstep_slow_ranks", "Ranks that are slower than the others with the same work."),
      time("lockstep_run_timestamp_seconds", "When the results were measured, in Unix time.");
  const ordered_json& all = file.at("steps");
  loss.add(labels, all.back().at("loss"));
  // The first step also allocates.
  for (std::size_t i = all.size() > 1 ? 1 : 0; i < all.size(); ++i)
    steps.add(labels, all[i].at("seconds"));
  wrong.add(labels, static_cast<double>(std::ranges::count_if(file.at("theory"), differs)));
  if (file.contains("slow_ranks"))
    slow.add(labels, static_cast<double>(file["slow_ranks"].at("ranks").size()));
  time.add(labels, unix_seconds(file.at("environment").value("time", "")));
  return loss.text() + steps.text() + wrong.text() + slow.text() + time.text();
}

}  // namespace lockstep
