#include "parallel/plan/plan_claims.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "collectives/base/checksum.h"
#include "collectives/base/json_text.h"
#include "models/data/token_files.h"
#include "models/gpt/adapter_files.h"
#include "models/gpt/weight_files.h"

namespace lockstep {
namespace {

std::string contents_of_all(const std::vector<std::string>& paths) {
  if (paths.size() == 1) return contents_of(paths.front());
  Checksum of_all;
  for (const std::string& path : paths) of_all.add(contents_of(path));
  return fmt::format("{} files with checksum {:016x}", paths.size(), of_all.value());
}

Claim claim_of(const Option& option, const TrainOptions& options) {
  const std::string flag = "--" + option.flag;
  if (option.flag == "data") return {flag, contents_of_all(data_paths(options.data))};
  if (option.flag == "init")
    return {flag, options.init.empty() ? "none" : contents_of_all(weight_paths(options.init))};
  if (option.flag == "lora-init" && !options.lora_init.empty())
    return {flag, contents_of(adapter_weights_path(options.lora_init))};
  if (option.flag == "schedule-file") return {flag, contents_of(options.schedule_file)};
  return {flag, text_of(option)};
}

}  // namespace

std::string frozen_contents(const TrainOptions& options) {
  if (options.lora_rank == 0 || options.init.empty()) return "";
  return contents_of_all(weight_paths(options.init));
}

Claims claims_of(const Plan& plan) {
  Claims claims = {{std::string(command_claim), "train " + plan.technique()}};
  const auto model = parse_json<nlohmann::ordered_json>(gpt_config_json(plan.model), "the model");
  for (const auto& [key, value] : model.items())
    claims.push_back({fmt::format("{} of --model", key), json_line(value)});
  TrainOptions options = plan.options;
  for (const OptionGroup& group : describe(options))
    for (const Option& option : group.options)
      if (option.flag != "model") claims.push_back(claim_of(option, options));
  return claims;
}

}  // namespace lockstep
