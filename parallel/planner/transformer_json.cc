#include "parallel/planner/transformer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

class ConfigKeys {
 public:
  ConfigKeys(const ordered_json& config, const std::string& where)
      : config_(config), where_(where) {}

  bool has(const char* key) const {
    const bool is_there = config_.contains(key) && !config_[key].is_null();
    if (is_there) read_.insert(key);
    return is_there;
  }
  // The keys that were asked for and are there, in the config's order.
  ordered_json read() const {
    ordered_json keys = ordered_json::object();
    for (const auto& [key, value] : config_.items())
      if (read_.contains(key)) keys[key] = value;
    return keys;
  }
  std::int64_t size(const char* key, std::int64_t least = 1) const {
    constexpr std::int64_t most = 100'000'000;
    expect(
        has(key), [&] { return fmt::format("the model has no \"{}\"", key); },
        "give the keys of a config.json");
    const ordered_json& value = config_[key];
    expect(
        value.is_number_integer() && value >= least && value <= most,
        [&] { return fmt::format("the model's \"{}\" is {}", key, shown(value)); },
        fmt::format("use an integer from {} to {}", least, most));
    return value;
  }
  std::int64_t size_or(const char* key, std::int64_t instead, std::int64_t least = 1) const {
    return has(key) ? size(key, least) : instead;
  }
  bool flag_or(const char* key, bool instead) const {
    if (!has(key)) return instead;
    expect(config_[key].is_boolean(),
           [&] { return fmt::format("the model's \"{}\" is {}", key, shown(config_[key])); });
    return config_[key];
  }

  template <typename Message>
  void expect(bool holds, Message message, std::string_view hint = "") const {
    require(
        holds, [&] { return fmt::format("{}: {}", where_, message()); }, hint);
  }

 private:
  const ordered_json& config_;
  const std::string& where_;
  mutable std::set<std::string> read_;
};

// How a kind of model names what it has of experts; nullptr: it has none of this.
struct ExpertKeys {
  const char *count, *per_token, *ffn, *every, *first_layer;
};
constexpr ExpertKeys expert_keys[] = {
    {"n_experts", "experts_per_token", "expert_width", "moe_every", nullptr},
    {"num_local_experts", "num_experts_per_tok", "intermediate_size", nullptr, nullptr},
    {"num_experts", "num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step", nullptr},
    {"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "moe_layer_freq",
     "first_k_dense_replace"}};

ExpertSizes experts_of(const ConfigKeys& keys) {
  ExpertSizes experts;
  for (const ExpertKeys& key : expert_keys) {
    if (!keys.has(key.count)) continue;
    keys.expect(
        experts.count == 0,
        [&] {
          return fmt::format("the model has \"{}\" and another number of experts", key.count);
        },
        "give one");
    experts = {.count = keys.size(key.count),
               .per_token = keys.size(key.per_token),
               .ffn = keys.size(key.ffn)};
    if (key.every) experts.period = keys.size_or(key.every, 1);
    if (key.first_layer) experts.first_layer = keys.size_or(key.first_layer, 0, 0);
    // DeepSeek counts layers from 0, others from 1.
    experts.offset = key.first_layer ? 0 : 1;
    experts.shared_ffn = keys.size_or("n_shared_experts", 0, 0) * experts.ffn;
    keys.expect(
        experts.per_token <= experts.count,
        [&] {
          return fmt::format("{} experts for each token of {}", experts.per_token, experts.count);
        },
        "a token cannot have more than there are");
  }
  return experts;
}

// What changes a model's size or a step's time, and is not modelled.
void refuse_unknown_parts(const ordered_json& config, const ConfigKeys& keys, bool is_llama) {
  const auto refuse = [&](bool is_there, const char* key, std::string_view hint) {
    keys.expect(
        !is_there, [&] { return fmt::format("the model has \"{}\"", key); }, hint);
  };
  const auto holds = [&](const char* key) {
    return config.contains(key) && !config[key].is_null();
  };
  refuse(holds("sliding_window"), "sliding_window",
         "the cost model knows attention to all tokens before");
  refuse(holds("mlp_only_layers") && !config["mlp_only_layers"].empty(), "mlp_only_layers",
         "the cost model knows experts in every n-th layer");
  refuse(holds("shared_expert_intermediate_size"), "shared_expert_intermediate_size",
         "the cost model knows shared experts that are as wide as the others");
  refuse(!is_llama && holds("kv_lora_rank"), "kv_lora_rank",
         "the cost model knows it in the keys of DeepSeek");
  // DeepSeek-V3's file says how its weights are stored.
  const ordered_json stored = config.value("quantization_config", ordered_json::object());
  refuse(holds("quantization_config") &&
             (!stored.is_object() || stored.value("quant_method", ordered_json()) != "fp8"),
         "quantization_config", "the cost model knows weights in 16 bits, and products in fp8");
}

// Sizes that no model has could overflow an integer.
void refuse_giants(const Transformer& model, const ConfigKeys& keys) {
  constexpr double most = 1e15;
  const double layer =
      real(model.width) *
          (real(model.heads) * real(model.head_size + model.value_size) + 3 * real(model.ffn) +
           3 * real(model.experts.shared_ffn) +
           3 * real(std::max<std::int64_t>(1, model.experts.count)) * real(model.experts.ffn) +
           real(model.latent.query_rank + model.latent.kv_rank) + real(model.experts.count)) +
      real(model.latent.query_rank + model.latent.kv_rank) * real(model.heads) *
          real(model.head_size + model.value_size);
  const double parameters =
      real(model.layers) * layer + 2 * real(model.vocabulary + model.context) * real(model.width);
  keys.expect(
      parameters <= most,
      [&] { return fmt::format("a model of about {:.1g} parameters", parameters); },
      fmt::format("the cost model goes up to {:.0e}", most));
}

// Kinds of models in the keys of GPT-2, and of Llama by the names of Hugging Face.
constexpr std::string_view kinds_of_gpt2[] = {"gpt2", "gpt2-gqa", "gpt2-moe"};
constexpr std::string_view kinds_of_llama[] = {"llama",     "mistral",     "mixtral",
                                               "qwen3_moe", "deepseek_v2", "deepseek_v3"};

Transformer llama_from(const ConfigKeys& keys) {
  Transformer model{.layers = keys.size("num_hidden_layers"),
                    .heads = keys.size("num_attention_heads"),
                    .width = keys.size("hidden_size"),
                    .ffn = keys.size("intermediate_size"),
                    .vocabulary = keys.size("vocab_size"),
                    .context = keys.size_or("max_position_embeddings", 0),
                    .gated = true,
                    .tied_head = keys.flag_or("tie_word_embeddings", false)};
  if (!keys.has("kv_lora_rank")) return model;
  model.latent = {.query_rank = keys.size_or("q_lora_rank", 0),
                  .kv_rank = keys.size("kv_lora_rank"),
                  .rotary_size = keys.size("qk_rope_head_dim")};
  model.head_size = keys.size("qk_nope_head_dim") + model.latent.rotary_size;
  model.value_size = keys.size("v_head_dim");
  return model;
}

Transformer gpt2_from(const ConfigKeys& keys) {
  Transformer model{.layers = keys.size("n_layer"),
                    .heads = keys.size("n_head"),
                    .width = keys.size("n_embd"),
                    .vocabulary = keys.size("vocab_size"),
                    .context = keys.size("n_positions"),
                    .tied_head = true,
                    .learned_positions = true,
                    .biases = true,
                    .layer_norm = true};
  model.ffn = keys.size_or("n_inner", 4 * model.width);
  return model;
}

Transformer read_transformer(const ordered_json& config, const ConfigKeys& keys) {
  const ordered_json type = keys.has("model_type") ? config["model_type"] : ordered_json();
  const std::string name = type.is_string() ? type.get<std::string>() : "";
  const bool is_llama =
      std::ranges::count(kinds_of_llama, name) > 0 || (type.is_null() && keys.has("hidden_size"));
  keys.expect(
      is_llama || type.is_null() || std::ranges::count(kinds_of_gpt2, name) > 0,
      [&] { return fmt::format("a model of type {}", shown(type)); },
      fmt::format("the cost model knows {}, {}", fmt::join(kinds_of_gpt2, ", "),
                  fmt::join(kinds_of_llama, ", ")));
  refuse_unknown_parts(config, keys, is_llama);
  Transformer model = is_llama ? llama_from(keys) : gpt2_from(keys);
  model.experts = experts_of(keys);
  keys.expect(
      model.experts.count > 0 || (name != "mixtral" && name != "qwen3_moe" && name != "gpt2-moe"),
      [&] { return fmt::format("a model of type {} without a number of experts", name); },
      "give the keys of its config.json");
  keys.expect(
      model.experts.count == 0 || model.expert_layers(0, model.layers) > 0,
      [&] { return fmt::format("none of the {} layers has experts", model.layers); },
      "check which layers have them");
  model.head_norms = name == "qwen3_moe";
  model.predicts_further =
      keys.has("num_nextn_predict_layers") && keys.size("num_nextn_predict_layers", 0) > 0;
  model.kv_heads =
      model.latent.exists() ? model.heads : keys.size_or("num_key_value_heads", model.heads);
  if (!model.latent.exists()) {
    keys.expect(
        keys.has("head_dim") || model.width % model.heads == 0,
        [&] {
          return fmt::format("the width {} is not divisible by {} heads", model.width, model.heads);
        },
        "the width must be a multiple of the heads");
    model.head_size = model.value_size = keys.size_or("head_dim", model.width / model.heads);
  }
  keys.expect(
      model.heads % model.kv_heads == 0,
      [&] {
        return fmt::format("{} query heads are not a multiple of {} key/value heads", model.heads,
                           model.kv_heads);
      },
      "the query heads must be a multiple of the key/value heads");
  refuse_giants(model, keys);
  return model;
}

void expect_object(const ordered_json& config, const std::string& where) {
  require(
      config.is_object(), [&] { return fmt::format("{}: \"model\" is not an object", where); },
      "give the keys of a config.json");
}

}  // namespace

Transformer transformer_from(const ordered_json& config, const std::string& where) {
  expect_object(config, where);
  return read_transformer(config, ConfigKeys(config, where));
}

ordered_json transformer_keys(const ordered_json& config, const std::string& where) {
  expect_object(config, where);
  const ConfigKeys keys(config, where);
  read_transformer(config, keys);
  return keys.read();
}

}  // namespace lockstep
