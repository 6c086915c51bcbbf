// Files of single cases.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "parallel/fuzz/fuzz_case.h"
#include "parallel/make_plan.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr const char* fuzz_schema = "lockstep.fuzz/1";
constexpr const char* options_of_the_case[] = {"model", "init", "data", "steps", "threads"};

ordered_json json_of(const FuzzPlan& plan, const GptConfig& model) {
  ordered_json json = plan_json(plan_of(plan.options, plan.ranks, model));
  json.erase("model");
  for (const char* key : options_of_the_case) json["options"].erase(key);
  return json;
}

}  // namespace

std::string case_json(const FuzzCase& fuzz_case) {
  ordered_json json = {{"schema", fuzz_schema}, {"seed", fuzz_case.seed}};
  json["model"] = parse_json<ordered_json>(gpt_config_json(fuzz_case.model), "the model");
  if (fuzz_case.before) json["before"] = json_of(*fuzz_case.before, fuzz_case.model);
  json["plan"] = json_of(fuzz_case.plan, fuzz_case.model);
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
                     .plan = {},
                     .before = {}};
  const auto plan_at = [&](const char* key) {
    const PlanFile file = plan_from_json(json[key], path);
    require_that(file.options.technique != "serial" && file.options.technique != "ps",
                 fmt::format("'{}' is of the technique {}", key, file.options.technique));
    return FuzzPlan{file.options, file.ranks};
  };
  fuzz_case.plan = plan_at("plan");
  if (json.contains("before")) fuzz_case.before = plan_at("before");
  return fuzz_case;
}

}  // namespace lockstep
