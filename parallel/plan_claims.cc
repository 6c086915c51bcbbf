#include "parallel/plan_claims.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "collectives/base/checksum.h"
#include "collectives/base/json_text.h"
#include "collectives/base/mapped_file.h"
#include "models/token_files.h"
#include "models/weight_files.h"
#include "parallel/checkpoint/folder.h"

namespace lockstep {
namespace {

constexpr std::int64_t any_bytes = std::numeric_limits<std::int64_t>::max();

std::string contents_of_all(const std::vector<std::string>& paths) {
  if (paths.size() == 1) return contents_of(paths.front());
  Checksum of_all;
  for (const std::string& path : paths) of_all.add(contents_of(path));
  return fmt::format("{} files with checksum {:016x}", paths.size(), of_all.value());
}

// An index names the checksums of its checkpoint's other files.
std::string checkpoints_of(const std::string& folder) {
  if (folder.empty()) return "none";
  Checksum of_all;
  const std::vector<std::string> checkpoints = find_checkpoints(folder);
  for (const std::string& checkpoint : checkpoints) {
    const MappedFile index((std::filesystem::path(checkpoint) / "index.json").string(), any_bytes);
    of_all.add(index.bytes());
  }
  return fmt::format("{} checkpoints with checksum {:016x}", checkpoints.size(), of_all.value());
}

Claim claim_of(const Option& option, const TrainOptions& options) {
  const std::string flag = "--" + option.flag;
  if (option.flag == "data") return {flag, contents_of_all(data_paths(options.data))};
  if (option.flag == "init")
    return {flag, options.init.empty() ? "none" : contents_of_all(weight_paths(options.init))};
  if (option.flag == "schedule-file") return {flag, contents_of(options.schedule_file)};
  if (option.flag == "resume") return {flag, checkpoints_of(options.resume)};
  return {flag, text_of(option)};
}

}  // namespace

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
