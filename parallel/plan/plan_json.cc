// Reads and writes plans as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "parallel/plan/plan.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr const char* plan_schema = "lockstep.plan/1";

}  // namespace

ordered_json options_json(const Plan& plan) {
  TrainOptions copy = plan.options;
  ordered_json json = ordered_json::object();
  for (const OptionGroup& group : describe(copy)) {
    if (!group.belongs_to(plan.technique())) continue;
    for (const Option& option : group.options)
      if (!option.has_effect || option.has_effect(plan.options))
        json[option.json_key()] = json_of(option);
  }
  return json;
}

ordered_json plan_json(const Plan& plan) {
  ordered_json json = {{"schema", plan_schema},
                       {"technique", plan.technique()},
                       {"ranks", plan.ranks},
                       {"options", options_json(plan)}};
  json["model"] = parse_json<ordered_json>(gpt_config_json(plan.model), "the model");
  for (const Axis axis : plan.mesh.order()) {
    json["mesh"]["order"].push_back(name_of(axis));
    json["mesh"]["lengths"][std::string(name_of(axis))] = plan.length(axis);
  }
  json["stages"] = ordered_json::array();
  const std::vector<int> rank_of_stage = plan.schedule.rank_of_stage();
  for (int s = 0; s < plan.schedule.stages; ++s) {
    const StageLayers layers = layers_of_stage(plan.model.layers, plan.schedule.stages, s);
    json["stages"].push_back({{"stage", s},
                              {"pp", rank_of_stage[static_cast<std::size_t>(s)]},
                              {"first_layer", layers.first},
                              {"layers", layers.count}});
  }
  return json;
}

PlanFile read_plan(const std::string& path) {
  constexpr std::int64_t most_bytes = std::int64_t{64} << 20;
  return plan_from_json(read_json<ordered_json>(path, most_bytes), path);
}

PlanFile plan_from_json(const ordered_json& json, const std::string& path) {
  const auto require_that = [&](bool condition, const std::string& what) {
    require(condition, fmt::format("{}: {}", path, what),
            "write one with: lockstep plan TECHNIQUE ... --json FILE");
  };
  require_that(json.is_object() && json.value("schema", ordered_json()) == plan_schema,
               fmt::format("it is not a plan of the schema {}", plan_schema));
  for (const char* key : {"technique", "ranks", "options"})
    require_that(json.contains(key), fmt::format("the key '{}' is missing", key));
  require_that(json["technique"].is_string(), "'technique' is not a text");
  require_that(
      json["ranks"].is_number_integer() && json["ranks"] >= 1 && json["ranks"] <= 10'000'000,
      "'ranks' is not a number from 1 to 10 million");
  require_that(json["options"].is_object(), "'options' is not an object");

  PlanFile file{.options = {}, .ranks = json["ranks"].get<int>(), .given = {}};
  file.options = default_options(json["technique"].get<std::string>());
  const std::vector<OptionGroup> groups = describe(file.options);
  for (const auto& [key, value] : json["options"].items()) {
    const Option* found = nullptr;
    for (const OptionGroup& group : groups)
      for (const Option& option : group.options)
        if (group.belongs_to(file.options.technique) && option.json_key() == key) found = &option;
    require_that(found != nullptr,
                 fmt::format("{} has no option '{}'", file.options.technique, key));
    try {
      set_from_json(*found, value);
      check(*found);
    } catch (const Error& error) {
      require_that(false, error.message());
    }
    file.given.push_back(found->flag);
  }
  return file;
}

}  // namespace lockstep
