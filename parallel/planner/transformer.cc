#include "parallel/planner/transformer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

class ConfigKeys {
 public:
  ConfigKeys(const ordered_json& config, const std::string& where)
      : config_(config), where_(where) {}

  bool has(const char* key) const { return config_.contains(key) && !config_[key].is_null(); }
  std::int64_t size(const char* key) const {
    constexpr std::int64_t most = 100'000'000;
    require(
        has(key), [&] { return fmt::format("{}: the model has no \"{}\"", where_, key); },
        "give the keys of a config.json");
    const ordered_json& value = config_[key];
    require(
        value.is_number_integer() && value >= 1 && value <= most,
        [&] { return fmt::format("{}: the model's \"{}\" is {}", where_, key, shown(value)); },
        fmt::format("use an integer from 1 to {}", most));
    return value;
  }
  std::int64_t size_or(const char* key, std::int64_t instead) const {
    return has(key) ? size(key) : instead;
  }
  bool flag_or(const char* key, bool instead) const {
    if (!has(key)) return instead;
    require(config_[key].is_boolean(), [&] {
      return fmt::format("{}: the model's \"{}\" is {}", where_, key, shown(config_[key]));
    });
    return config_[key];
  }

 private:
  const ordered_json& config_;
  const std::string& where_;
};

constexpr const char* keys_of_unknown_parts[] = {
    "n_experts",    "num_experts",    "num_local_experts",  "n_routed_experts",
    "kv_lora_rank", "sliding_window", "quantization_config"};

}  // namespace

std::int64_t Transformer::layer_matrices() const {
  return width * (query_width() + 2 * kv_width()) + query_width() * width +
         (gated ? 3 : 2) * width * ffn;
}
std::int64_t Transformer::layer_parameters() const {
  const std::int64_t bias_elements =
      biases ? query_width() + 2 * kv_width() + width + (gated ? 2 : 1) * ffn + width : 0;
  return layer_matrices() + bias_elements + 2 * width * (layer_norm ? 2 : 1);
}
std::int64_t Transformer::embedding_parameters() const {
  return vocabulary * width + (learned_positions ? context * width : 0);
}
std::int64_t Transformer::head_parameters() const {
  return (tied_head ? 0 : vocabulary * width) + width * (layer_norm ? 2 : 1);
}
std::int64_t Transformer::parameters() const {
  return layers * layer_parameters() + embedding_parameters() + head_parameters();
}

double Transformer::layer_forward_flops(double tokens) const {
  return 2 * tokens * static_cast<double>(layer_matrices()) +
         4 * tokens * tokens * static_cast<double>(query_width());
}
double Transformer::forward_flops(double tokens) const {
  return static_cast<double>(layers) * layer_forward_flops(tokens) +
         2 * tokens * static_cast<double>(width) * static_cast<double>(vocabulary);
}

Transformer transformer_from(const ordered_json& config, const std::string& where) {
  require(
      config.is_object(), [&] { return fmt::format("{}: \"model\" is not an object", where); },
      "give the keys of a config.json");
  for (const char* key : keys_of_unknown_parts)
    require(
        !config.contains(key) || config[key].is_null(),
        [&] { return fmt::format("{}: the model has \"{}\"", where, key); },
        "the cost model knows dense GPT-2 and Llama models");
  const ConfigKeys keys(config, where);
  const ordered_json type = config.value("model_type", ordered_json());
  const bool is_llama = type == "llama" || (type.is_null() && keys.has("hidden_size"));
  require(
      is_llama || type.is_null() || type == "gpt2" || type == "gpt2-gqa",
      [&] { return fmt::format("{}: a model of type {}", where, shown(type)); },
      "the cost model knows gpt2 and llama");
  Transformer model;
  if (is_llama) {
    model = {.layers = keys.size("num_hidden_layers"),
             .heads = keys.size("num_attention_heads"),
             .width = keys.size("hidden_size"),
             .ffn = keys.size("intermediate_size"),
             .vocabulary = keys.size("vocab_size"),
             .context = keys.size_or("max_position_embeddings", 0),
             .gated = true,
             .tied_head = keys.flag_or("tie_word_embeddings", false)};
  } else {
    model = {.layers = keys.size("n_layer"),
             .heads = keys.size("n_head"),
             .width = keys.size("n_embd"),
             .vocabulary = keys.size("vocab_size"),
             .context = keys.size("n_positions"),
             .tied_head = true,
             .learned_positions = true,
             .biases = true,
             .layer_norm = true};
    model.ffn = keys.size_or("n_inner", 4 * model.width);
  }
  model.kv_heads = keys.size_or("num_key_value_heads", model.heads);
  require(
      keys.has("head_dim") || model.width % model.heads == 0,
      [&] {
        return fmt::format("{}: the width {} is not divisible by {} heads", where, model.width,
                           model.heads);
      },
      "the width must be a multiple of the heads");
  model.head_size = keys.size_or("head_dim", model.width / model.heads);
  require(
      model.heads % model.kv_heads == 0,
      [&] {
        return fmt::format("{}: {} query heads are not a multiple of {} key/value heads", where,
                           model.heads, model.kv_heads);
      },
      "the query heads must be a multiple of the key/value heads");
  return model;
}

}  // namespace lockstep
