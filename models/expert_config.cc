#include "models/expert_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <tuple>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::array router_names = {"softmax", "softmax_unnormalized", "sigmoid"};
constexpr std::array expert_keys = {
    "n_experts", "experts_per_token",    "moe_every",  "expert_width", "n_shared_experts",
    "router",    "router_aux_loss_coef", "router_bias"};

bool states(const json& file, const char* key) {
  return file.contains(key) && !file[key].is_null();
}

int whole_number(const json& file, const char* key, int least, const std::string& path) {
  require(states(file, key), fmt::format("{}: no \"{}\"", path, key),
          fmt::format("a model with \"n_experts\" also needs \"{}\"", key));
  const json& value = file[key];
  require(value.is_number_integer() && value >= least && value <= 1'000'000,
          fmt::format("{}: \"{}\" is {}", path, key, shown(value)),
          fmt::format("use a whole number of at least {}", least));
  return value.get<int>();
}

}  // namespace

std::string_view name_of(RouterWeights weights) {
  return router_names[static_cast<std::size_t>(weights)];
}

Count ExpertConfig::parameter_count(Count model_width) const {
  const auto mlp = [&](Count hidden) {
    return hidden > 0 ? 2 * model_width * hidden + hidden + model_width : 0;
  };
  return model_width * number + number * mlp(width) + mlp(shared_width());
}

ExpertConfig parse_experts(const json& file, const std::string& path) {
  if (!states(file, "n_experts")) {
    for (const char* key : expert_keys)
      require(!states(file, key),
              fmt::format("{}: \"{}\" is {}, and no \"n_experts\"", path, key,
                          shown(file.value(key, json()))),
              "a model with experts states how many; remove the key from one without");
    return {};
  }
  ExpertConfig experts{.number = whole_number(file, "n_experts", 1, path),
                       .per_token = whole_number(file, "experts_per_token", 1, path),
                       .width = whole_number(file, "expert_width", 1, path)};
  if (states(file, "moe_every")) experts.every = whole_number(file, "moe_every", 1, path);
  if (states(file, "n_shared_experts"))
    experts.shared = whole_number(file, "n_shared_experts", 0, path);
  if (states(file, "router")) {
    const auto* const name = std::ranges::find_if(
        router_names, [&](const char* known) { return file["router"] == known; });
    require(name != router_names.end(),
            fmt::format("{}: \"router\" is {}", path, shown(file["router"])),
            fmt::format("only {} are known", fmt::join(router_names, ", ")));
    experts.router = static_cast<RouterWeights>(name - router_names.begin());
  }
  if (states(file, "router_aux_loss_coef")) {
    const json& value = file["router_aux_loss_coef"];
    require(value.is_number() && value >= 0 && value <= 1000,
            fmt::format("{}: \"router_aux_loss_coef\" is {}", path, shown(value)),
            "use a number from 0 to 1000");
    experts.balance = value;
  }
  if (states(file, "router_bias")) {
    require(file["router_bias"].is_boolean(),
            fmt::format("{}: \"router_bias\" is {}", path, shown(file["router_bias"])),
            "use true or false");
    experts.bias = file["router_bias"];
  }
  return experts;
}

void add_experts(nlohmann::ordered_json& file, const ExpertConfig& experts) {
  if (!experts.exist()) return;
  file["n_experts"] = experts.number;
  file["experts_per_token"] = experts.per_token;
  file["moe_every"] = experts.every;
  file["expert_width"] = experts.width;
  file["n_shared_experts"] = experts.shared;
  file["router"] = name_of(experts.router);
  file["router_aux_loss_coef"] = experts.balance;
  if (experts.has_bias()) file["router_bias"] = true;
}

void check(const ExpertConfig& experts, int layers) {
  if (!experts.exist()) return;
  require(experts.per_token >= 1 && experts.per_token <= experts.number,
          fmt::format("{} experts per token of {} experts", experts.per_token, experts.number),
          fmt::format("use 1 to {}", experts.number));
  require(experts.number <= 4096, fmt::format("{} experts", experts.number), "use 1 to 4096");
  require(experts.width >= 1 && experts.width <= 400'000,
          fmt::format("experts of {} columns", experts.width), "use 1 to 400000");
  require(experts.shared >= 0 && experts.shared <= 64,
          fmt::format("{} shared experts", experts.shared), "use 0 to 64");
  require(experts.every >= 1 && experts.every <= layers,
          fmt::format("experts in every {}th of {} layers", experts.every, layers),
          fmt::format("no layer would have experts; use 1 to {}", layers));
  require(experts.groups >= 1 && experts.number % experts.groups == 0,
          fmt::format("--router-num-groups {} of {} experts", experts.groups, experts.number),
          "use a number that divides the experts");
  const int in_groups = experts.number / experts.groups * experts.chosen_groups;
  require(
      experts.chosen_groups >= 1 && experts.chosen_groups <= experts.groups &&
          experts.chosen_groups <= experts.per_token && in_groups >= experts.per_token,
      fmt::format("--router-group-topk {} of {} groups with {} experts each, for {} experts per "
                  "token",
                  experts.chosen_groups, experts.groups, experts.number / experts.groups,
                  experts.per_token),
      "use at most as many as there are groups and experts per token, and enough for these");
}

bool is_same_model(const ExpertConfig& a, const ExpertConfig& b) {
  const auto numbers = [](const ExpertConfig& e) {
    return std::tuple(e.number, e.per_token, e.every, e.width, e.shared, e.router);
  };
  return numbers(a) == numbers(b) || (!a.exist() && !b.exist());
}

}  // namespace lockstep
