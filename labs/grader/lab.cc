#include "labs/grader/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

Lab lab_from(const nlohmann::json& json, const std::string& folder) {
  Lab lab{.number = json.at("number"),
          .name = json.at("name"),
          .title = json.at("title"),
          .operation = json.at("operation"),
          .minutes = json.at("minutes"),
          .lesson = json.at("lesson"),
          .files = {},
          .obligations = {},
          .mutants = {},
          .variants = {},
          .problems = {},
          .plans = {},
          .race = {},
          .folder = folder};
  for (const auto& file : json.at("files"))
    lab.files.push_back({.name = file.at("name"),
                         .source = file.at("source"),
                         .regions = file.at("regions"),
                         .instead = {}});
  for (const auto& each : json.at("obligations"))
    lab.obligations.push_back(
        {.name = each.at("name"), .points = each.at("points"), .hints = each.at("hints")});
  for (const auto& each : json.at("mutants"))
    lab.mutants.push_back({.name = each.at("name"),
                           .replacements = each.at("replacements"),
                           .fails = each.at("fails"),
                           .cause = each.value("cause", std::string(each.at("name")))});
  for (const auto& each : json.at("variants"))
    lab.variants.push_back({.name = each.at("name"), .replacements = each.at("replacements")});
  if (lab.is_form())
    for (const auto& plan : json.at("plans"))
      lab.plans.push_back(
          {.name = plan.at("name"), .flags = plan.at("flags"), .json = json_line(plan.at("plan"))});
  if (json.contains("race")) {
    const nlohmann::json& race = json["race"];
    lab.race = {.file = race.at("file"),
                .plan = json_line(race.at("plan")),
                .free = race.at("free"),
                .link = race.at("link"),
                .flops_per_s = race.at("flops_per_s"),
                .memory_bytes_per_s = race.at("memory_bytes_per_s"),
                .memory_limit = race.at("memory_limit")};
  }
  if (!lab.operation.starts_with("answer")) return lab;
  const nlohmann::json& problems = json.at("problems");
  lab.problems.names = problems.at("names");
  lab.problems.by_obligation = problems.at("by_obligation");
  lab.problems.hidden = problems.at("hidden");
  lab.problems.drawn = problems.at("drawn");
  return lab;
}

// Reads the lines `REGION NUMBER CODE` of a lab's instead.txt, if it has one.
void read_instead(Lab& lab) {
  const std::string path = lab.folder + "/instead.txt";
  if (!std::filesystem::exists(path)) return;
  std::istringstream text(read_text(path, most_file_bytes));
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string region, code;
    int number = 0;
    words >> region >> number >> std::ws;
    std::getline(words, code);
    const auto file = std::ranges::find_if(lab.files, [&](const LabFile& each) {
      return std::ranges::count(each.regions, region) > 0;
    });
    require(file != lab.files.end() && !code.empty(), fmt::format("{}: {}", path, line),
            "write a region of lab.json, the number of its solution, and code");
    file->instead[{region, number}] = code;
  }
}

}  // namespace

int Lab::points() const {
  int sum = 0;
  for (const Obligation& obligation : obligations) sum += obligation.points;
  return sum;
}

std::vector<Lab> read_labs(const std::string& folder) {
  std::vector<Lab> labs;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = (entry.path() / "lab.json").string();
    if (!std::filesystem::exists(file)) continue;
    try {
      labs.push_back(lab_from(read_json(file, most_file_bytes), entry.path().string()));
      read_instead(labs.back());
    } catch (const nlohmann::json::exception& error) {
      throw Error(ErrorKind::bad_input, fmt::format("{}: {}", file, error.what()));
    }
  }
  std::ranges::sort(labs, {}, &Lab::number);
  return labs;
}

const Lab& find_lab(const std::vector<Lab>& labs, int number) {
  const auto found = std::ranges::find(labs, number, &Lab::number);
  std::string known;
  for (const Lab& lab : labs) known += fmt::format("{}{}", known.empty() ? "" : ", ", lab.number);
  require(found != labs.end(), fmt::format("there is no lab {}", number),
          fmt::format("choose one of {}", known));
  return *found;
}

}  // namespace lockstep
