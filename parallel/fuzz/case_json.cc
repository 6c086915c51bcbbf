// Files of single cases.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "parallel/fuzz/fuzz_case.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr const char* fuzz_schema = "lockstep.fuzz/1";
constexpr const char* options_of_the_case[] = {"model", "init", "data", "threads"};
// Older files do not name the steps: there were two, and the plan before took the first.
constexpr int usual_steps = 2;

ordered_json json_of(const FuzzPlan& plan, const GptConfig& model) {
  ordered_json json = plan_json(plan_of(plan, model));
  json.erase("model");
  for (const char* key : options_of_the_case) json["options"].erase(key);
  if (!plan.schedule.empty()) json["schedule"] = plan.schedule;
  return json;
}

}  // namespace

std::string case_json(const FuzzCase& fuzz_case) {
  ordered_json json = {{"schema", fuzz_schema}, {"seed", fuzz_case.seed}};
  if (fuzz_case.same_experts) json["same_experts"] = true;
  json["model"] = parse_json<ordered_json>(gpt_config_json(fuzz_case.model), "the model");
  for (std::size_t i = 0; i + 1 < fuzz_case.plans.size(); ++i)
    json["before"].push_back(json_of(fuzz_case.plans[i], fuzz_case.model));
  json["plan"] = json_of(fuzz_case.last(), fuzz_case.model);
  return json_text(json);
}

FuzzCase read_case(const std::string& path) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 20;
  const ordered_json json = read_json<ordered_json>(path, most_bytes);
  const auto require_that = [&](bool condition, const std::string& what) {
    require(condition, fmt::format("{}: {}", path, what), "lockstep fuzz writes such files");
  };
  require_that(json.is_object() && json.value("schema", ordered_json()) == fuzz_schema,
               fmt::format("it is not a case of the schema {}", fuzz_schema));
  for (const char* key : {"seed", "model", "plan"})
    require_that(json.contains(key), fmt::format("the key '{}' is missing", key));
  require_that(json["seed"].is_number_unsigned(), "'seed' is not a number from 0 on");
  FuzzCase fuzz_case{.seed = json["seed"].get<std::uint64_t>(),
                     .model = parse_gpt_config(json_line(json["model"]), path),
                     .plans = {}};
  if (json.contains("same_experts")) {
    require_that(json["same_experts"].is_boolean(), "'same_experts' is neither true nor false");
    fuzz_case.same_experts = json["same_experts"].get<bool>();
  }
  const auto add_plan = [&](const ordered_json& from, int steps) {
    const PlanFile file = plan_from_json(from, path);
    FuzzPlan& plan = fuzz_case.plans.emplace_back(file.options, file.ranks);
    if (!from["options"].contains("steps")) plan.options.steps = steps;
    if (plan.options.schedule_file.empty()) return;
    require_that(from.contains("schedule") && from["schedule"].is_string(),
                 "a plan has a schedule file, and the key 'schedule' has no text");
    plan.schedule = from["schedule"].get<std::string>();
  };
  if (json.contains("before")) {
    const ordered_json& before = json["before"];
    for (const ordered_json& plan : before.is_array() ? before : ordered_json::array({before}))
      add_plan(plan, usual_steps - 1);
  }
  add_plan(json["plan"], usual_steps);
  for (std::size_t i = 0; i < fuzz_case.plans.size(); ++i)
    require_that(
        fuzz_case.plans[i].options.steps > fuzz_case.first_step(i) &&
            fuzz_case.last().options.steps <= most_fuzz_steps,
        fmt::format("the 'steps' of its plans do not grow up to at most {}", most_fuzz_steps));
  chain(fuzz_case);
  return fuzz_case;
}

}  // namespace lockstep
