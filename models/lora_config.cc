#include "models/lora_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "models/gpt_config.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr const char* only_plain = "only plain LoRA adapters of whole linear layers are read";

// Keys that change what is computed or trained, with the values that mean plain LoRA. Where a list is
// empty, null, false, and empty lists and objects are allowed.
struct PlainKey {
  const char* name;
  std::vector<json> plain = {};
};
const std::vector<PlainKey>& plain_keys() {
  static const std::vector<PlainKey> keys = {{"bias", {"none"}},
                                             {"fan_in_fan_out", {true}},
                                             {"init_lora_weights", {true, false, "gaussian"}},
                                             {"alora_invocation_tokens"},
                                             {"alpha_pattern"},
                                             {"arrow_config"},
                                             {"corda_config"},
                                             {"ensure_weight_tying"},
                                             {"eva_config"},
                                             {"exclude_modules"},
                                             {"kasa_config"},
                                             {"layer_replication"},
                                             {"layers_pattern"},
                                             {"layers_to_transform"},
                                             {"loftq_config"},
                                             {"lora_bias"},
                                             {"lora_ga_config"},
                                             {"megatron_config"},
                                             {"modules_to_save"},
                                             {"monteclora_config"},
                                             {"rank_pattern"},
                                             {"target_parameters"},
                                             {"trainable_token_indices"},
                                             {"use_bdlora"},
                                             {"use_dora"},
                                             {"use_qalora"},
                                             {"velora_config"}};
  return keys;
}

bool is_plain(const PlainKey& key, const json& value) {
  if (!key.plain.empty()) return std::ranges::find(key.plain, value) != key.plain.end();
  return value.is_null() || value == json(false) ||
         ((value.is_array() || value.is_object()) && value.empty());
}

// Any other key could change what is computed, but for these.
bool is_remark(const std::string& key) {
  static const std::vector<std::string> remarks = {"auto_mapping",
                                                   "base_model_name_or_path",
                                                   "inference_mode",
                                                   "megatron_core",
                                                   "peft_type",
                                                   "peft_version",
                                                   "qalora_group_size",
                                                   "revision",
                                                   "task_type",
                                                   "runtime_config",
                                                   "r",
                                                   "lora_alpha",
                                                   "lora_dropout",
                                                   "target_modules",
                                                   "use_rslora"};
  return std::ranges::find(remarks, key) != remarks.end();
}

void check_keys(const json& file, const std::string& path) {
  for (const auto& [key, value] : file.items()) {
    if (is_remark(key)) continue;
    const auto known = std::ranges::find(plain_keys(), key, &PlainKey::name);
    const bool is_known = known != plain_keys().end();
    require(is_known ? is_plain(*known, value) : is_plain({""}, value),
            fmt::format("{}: \"{}\" is {}", path, key, shown(value)), only_plain);
  }
  // Without it, peft would take the matrices of GPT-2 as transposed ones.
  require(file.contains("fan_in_fan_out"), fmt::format("{}: no \"fan_in_fan_out\"", path),
          "GPT-2 stores its matrices as [in, out]: it must be true");
}

std::string needed_key(const std::string& path, const char* key) {
  return fmt::format("{}: \"{}\" is missing, or has no value that fits", path, key);
}

}  // namespace

double LoraConfig::scale() const {
  return rank_stabilized ? alpha / std::sqrt(static_cast<double>(rank)) : alpha / rank;
}

bool LoraConfig::adapts(std::string_view layer) const {
  return exists() && std::ranges::any_of(targets, [&](const std::string& target) {
           return layer == target || layer.ends_with("." + target);
         });
}

std::int64_t LoraConfig::parameter_count(const GptConfig& model) const {
  const std::int64_t c = model.width;
  std::int64_t columns = 0;
  if (adapts("attn.c_attn")) columns += c + model.qkv_width();
  if (adapts("attn.c_proj")) columns += c + c;
  if (adapts("mlp.c_fc")) columns += c + 4 * c;
  if (adapts("mlp.c_proj")) columns += 4 * c + c;
  return model.layers * rank * columns;
}

// Every block has the same ones.
bool LoraConfig::trains_below(std::string_view layer) const {
  if (!layer.starts_with("h.0.")) return true;
  for (const char* below : {"attn.c_attn", "attn.c_proj", "mlp.c_fc"}) {
    if (layer.ends_with(below)) return false;
    if (adapts(below)) return true;
  }
  return false;
}

const std::vector<std::string>& lora_targets() {
  static const std::vector<std::string> all = {
      "c_attn", "c_proj", "c_fc", "attn.c_attn", "attn.c_proj", "mlp.c_proj", "mlp.c_fc"};
  return all;
}

std::vector<std::string> lora_targets_from(std::string_view text) {
  std::vector<std::string> targets;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string target(text.substr(0, comma));
    require(std::ranges::find(lora_targets(), target) != lora_targets().end(),
            fmt::format("an adapter for '{}', and no linear layer has that name", target),
            fmt::format("there are {}", fmt::join(lora_targets(), ", ")));
    require(std::ranges::find(targets, target) == targets.end(),
            fmt::format("the adapter target '{}' occurs twice", target), "name each once");
    targets.push_back(target);
    if (comma == std::string_view::npos) return targets;
    text.remove_prefix(comma + 1);
  }
}

void check(const LoraConfig& lora, const GptConfig& model) {
  if (!lora.exists()) return;
  require(lora.rank <= model.width,
          fmt::format("--lora {} for matrices with {} rows", lora.rank, model.width),
          fmt::format("a product of rank {} is any matrix: use at most that", model.width));
  require(std::isfinite(lora.alpha) && lora.alpha > 0, fmt::format("--lora-alpha {}", lora.alpha),
          "use a number above 0");
  require(lora.dropout >= 0 && lora.dropout < 1, fmt::format("--lora-dropout {}", lora.dropout),
          "use at least 0 and below 1");
  require(!model.experts.exist(), "--lora with a model that has experts",
          "use a model without experts");
}

LoraConfig read_lora_config(const std::string& path) {
  constexpr std::int64_t most_bytes = 1 << 20;
  const json file = read_json(path, most_bytes);
  require(file.is_object() && file.value("peft_type", json()) == json("LORA"),
          fmt::format("{}: not the configuration of a LoRA adapter", path),
          "give a folder that peft or --save-adapters has written");
  check_keys(file, path);
  LoraConfig lora;
  const auto value = [&](const char* key) { return file.value(key, json()); };
  require(value("r").is_number_integer() && value("r") >= 1 && value("r") <= 1'000'000,
          needed_key(path, "r"), "use a whole number of at least 1");
  require(value("lora_alpha").is_number(), needed_key(path, "lora_alpha"), "use a number");
  require(!file.contains("use_rslora") || value("use_rslora").is_boolean(),
          needed_key(path, "use_rslora"), "use true or false");
  const json dropout = file.value("lora_dropout", json(0.0));
  require(dropout.is_number() && dropout >= 0 && dropout < 1, needed_key(path, "lora_dropout"),
          "use a number of at least 0 and below 1");
  const json targets = value("target_modules");
  require(targets.is_array() && !targets.empty() &&
              std::ranges::all_of(targets, [](const json& name) { return name.is_string(); }),
          needed_key(path, "target_modules"), "list the layers by name, such as [\"c_attn\"]");
  lora.rank = value("r").get<int>();
  lora.alpha = value("lora_alpha").get<double>();
  lora.rank_stabilized = file.value("use_rslora", false);
  lora.dropout = dropout.get<double>();
  lora.targets =
      lora_targets_from(fmt::format("{}", fmt::join(targets.get<std::vector<std::string>>(), ",")));
  return lora;
}

std::string lora_config_json(const LoraConfig& lora) {
  nlohmann::ordered_json file = {{"peft_type", "LORA"},
                                 {"task_type", "CAUSAL_LM"},
                                 {"base_model_name_or_path", nullptr},
                                 {"r", lora.rank},
                                 {"lora_alpha", lora.alpha},
                                 {"lora_dropout", lora.dropout},
                                 {"use_rslora", lora.rank_stabilized},
                                 {"use_dora", false},
                                 {"target_modules", lora.targets},
                                 {"fan_in_fan_out", true},
                                 {"bias", "none"},
                                 {"modules_to_save", nullptr},
                                 {"init_lora_weights", true},
                                 {"inference_mode", true}};
  // As peft writes it where it is whole.
  if (lora.alpha == std::floor(lora.alpha) && std::abs(lora.alpha) < 1e15)
    file["lora_alpha"] = static_cast<std::int64_t>(lora.alpha);
  return json_text(file);
}

}  // namespace lockstep
