#include "bench/collectives/tuning_file.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "bench/results/environment.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

constexpr std::string_view schema = "lockstep.tuning/1";
constexpr std::int64_t most_bytes = std::int64_t{1} << 24;

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw Error(ErrorKind::bad_input, fmt::format("{}: {}", path, reason),
              {.hint = "write one with: lockstep bench all_reduce --algorithm all --tune FILE"});
}

TunedChoice choice_from(const std::string& path, const nlohmann::json& entry) {
  TunedChoice choice;
  try {
    const OperationEntry& operation = find_operation(entry.at("operation").get<std::string>());
    choice = {.operation = operation.operation,
              .transport = entry.at("transport").get<std::string>(),
              .ranks = entry.at("ranks").get<int>(),
              .from_bytes = entry.at("from_bytes").get<Count>(),
              .algorithm = entry.at("algorithm").get<std::string>()};
    find_algorithm(operation.algorithms, name_of(choice.operation), choice.algorithm);
  } catch (const nlohmann::json::exception& error) {
    refuse(path, fmt::format("an invalid choice: {}", error.what()));
  }
  return choice;
}

}  // namespace

Tuning tuning_of(const BenchRun& run, const OperationEntry& entry) {
  std::map<Count, const BenchResult*> best;  // by size
  for (const BenchResult& result : run.results) {
    if (result.in_place != entry.in_place || result.algorithm == "auto") continue;
    const BenchResult*& so_far = best[result.problem.count * result.problem.element_bytes];
    if (!so_far || percentile(result.seconds, 0.5) < percentile(so_far->seconds, 0.5))
      so_far = &result;
  }
  Tuning tuning;
  for (const auto& [bytes, result] : best) {
    if (!tuning.choices.empty() && tuning.choices.back().algorithm == result->algorithm) continue;
    tuning.choices.push_back({.operation = entry.operation,
                              .transport = result->transport,
                              .ranks = result->problem.ranks,
                              .from_bytes = tuning.choices.empty() ? 0 : bytes,
                              .algorithm = result->algorithm});
  }
  return tuning;
}

Tuning merged(Tuning known, const Tuning& measured) {
  std::erase_if(known.choices, [&](const TunedChoice& old) {
    return std::ranges::any_of(measured.choices, [&](const TunedChoice& fresh) {
      return fresh.operation == old.operation && fresh.transport == old.transport &&
             fresh.ranks == old.ranks;
    });
  });
  known.choices.insert(known.choices.end(), measured.choices.begin(), measured.choices.end());
  return known;
}

std::string tuning_json(const Tuning& tuning) {
  nlohmann::ordered_json file = {{"schema", schema},
                                 {"environment", environment_json()},
                                 {"choices", nlohmann::ordered_json::array()}};
  for (const TunedChoice& choice : tuning.choices)
    file["choices"].push_back({{"operation", name_of(choice.operation)},
                               {"transport", choice.transport},
                               {"ranks", choice.ranks},
                               {"from_bytes", choice.from_bytes},
                               {"algorithm", choice.algorithm}});
  return json_text(file);
}

Tuning read_tuning(const std::string& path) {
  const auto file = read_json(path, most_bytes);
  if (!file.is_object()) refuse(path, "not a JSON object");
  if (file.value("schema", nlohmann::json()) != schema)
    refuse(path, fmt::format("its schema is {}, but this program reads \"{}\"",
                             shown(file.value("schema", nlohmann::json())), schema));
  if (!file.contains("choices") || !file["choices"].is_array()) refuse(path, "it has no choices");
  Tuning tuning;
  for (const auto& entry : file["choices"]) tuning.choices.push_back(choice_from(path, entry));
  return tuning;
}

}  // namespace lockstep
