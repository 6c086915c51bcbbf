#include "models/gpt_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::json;

struct Preset {
  std::string_view name;
  GptConfig config;
};
constexpr int byte_vocabulary = 256;
constexpr const char* grouped_query_type = "gpt2-gqa";
constexpr const char* experts_type = "gpt2-moe";
// The token between two texts.
constexpr int end_of_text = 50256;
constexpr Preset presets[] = {
    {"nano", {.layers = 4, .heads = 4, .width = 128, .context = 64, .vocabulary = byte_vocabulary}},
    {"nano-moe",
     {.layers = 4,
      .heads = 4,
      .width = 128,
      .context = 64,
      .vocabulary = byte_vocabulary,
      .experts = {.number = 8, .per_token = 2, .width = 512, .balance = 0.01}}},
    {"small",
     {.layers = 6, .heads = 6, .width = 384, .context = 256, .vocabulary = byte_vocabulary}},
    {"gpt2", {.layers = 12, .heads = 12, .width = 768, .context = 1024, .vocabulary = 50257}},
    {"gpt3", {.layers = 96, .heads = 96, .width = 12288, .context = 2048, .vocabulary = 50257}},
};

int integer(const json& file, const char* key, const std::string& path) {
  require(file.contains(key), fmt::format("{}: no \"{}\"", path, key), "give a GPT-2 config.json");
  const json& value = file[key];
  require(value.is_number_integer() && value >= 1 && value <= 1'000'000'000,
          fmt::format("{}: \"{}\" is {}", path, key, shown(value)),
          "use a whole number of at least 1");
  return value.get<int>();
}

bool is_given(const json& file, const char* key) {
  return file.contains(key) && !file[key].is_null();
}

// The number of a token with a special meaning, or a list of such numbers, or null.
std::string special_token(const json& file, const char* key, const std::string& path) {
  if (!file.contains(key)) return "";
  const json& value = file[key];
  const bool is_list = value.is_array() && value.size() <= 16 &&
                       std::ranges::all_of(value, &json::is_number_integer);
  require(value.is_null() || value.is_number_integer() || is_list,
          fmt::format("{}: \"{}\" is {}", path, key, shown(value)),
          "use the number of a token, or null");
  return json_line(value);
}

// Missing rates equal the first rate that is given.
DropoutRates dropout_rates(const json& file, const std::string& path) {
  DropoutRates rates;
  bool any = false;
  for (const auto& [key, rate] : {std::pair{"resid_pdrop", &rates.residual},
                                  {"embd_pdrop", &rates.embedding},
                                  {"attn_pdrop", &rates.attention}}) {
    if (!is_given(file, key)) continue;
    const json& value = file[key];
    require(value.is_number() && value >= 0 && value < 1,
            fmt::format("{}: \"{}\" is {}", path, key, shown(value)),
            "use a number from 0 to below 1");
    if (!any) rates = {value, value, value};
    *rate = value;
    any = true;
  }
  return rates;
}

// The values that this model supports for keys that change what is computed. A key that is absent
// or null has GPT-2's default. reorder_and_upcast_attn may be either: attention sums in f32 or f64
// anyway.
std::vector<std::pair<const char*, std::vector<json>>> known_values(const GptConfig& config) {
  return {{"model_type", {"gpt2", grouped_query_type, experts_type}},
          {"activation_function", {"gelu_new", "gelu_pytorch_tanh"}},  // two names of one function
          {"n_inner", {4 * Count{config.width}}},
          {"n_ctx", {config.context}},
          {"hidden_size", {config.width}},
          {"num_hidden_layers", {config.layers}},
          {"num_attention_heads", {config.heads}},
          {"max_position_embeddings", {config.context}},
          {"initializer_range", {0.02}},
          {"tie_word_embeddings", {true}},
          {"scale_attn_weights", {true}},
          {"scale_attn_by_inverse_layer_idx", {false}},
          {"add_cross_attention", {false}},
          {"is_encoder_decoder", {false}},
          {"pruned_heads", {json::object()}},
          {"position_embedding_type", {"absolute"}},
          {"bias", {true}}};
}

constexpr const char* keys_of_other_models[] = {"quantization_config", "rope_scaling",
                                                "rope_parameters", "sliding_window"};

// Refuses a model that computes something different.
void refuse_other_models(const json& file, const GptConfig& config, const std::string& path) {
  const auto refuse = [&](const char* key, std::string hint) {
    require(false, fmt::format("{}: \"{}\" is {}", path, key, shown(file[key])), std::move(hint));
  };
  for (const char* key : keys_of_other_models)
    if (is_given(file, key)) refuse(key, "GPT-2 has no such key; use a GPT-2");
  for (const auto& [key, values] : known_values(config)) {
    if (!is_given(file, key) || std::ranges::count(values, file[key]) > 0) continue;
    std::string known;
    for (const json& value : values)
      known += fmt::format("{}{}", known.empty() ? "" : " or ", shown(value));
    refuse(key, fmt::format("only {} is known", known));
  }
}

}  // namespace

GptConfig GptConfig::preset(std::string_view name) {
  std::string known;
  for (const Preset& preset : presets) {
    if (preset.name == name) return preset.config;
    known += fmt::format("{}, ", preset.name);
  }
  require(false, fmt::format("no model '{}'", name),
          fmt::format("choose one of {}or give a config.json", known));
  return {};
}

Count GptConfig::parameter_count() const {
  const Count c = width;
  Count mlps = 0;
  for (int layer = 0; layer < layers; ++layer)
    mlps += experts.in_layer(layer) ? experts.parameter_count(c) : 8 * c * c + 5 * c;
  const Count block = (c * c + 5 * c) + qkv_width() * (c + 1);
  return Count{vocabulary} * c + Count{context} * c + layers * block + mlps + 2 * c;
}

void check(const GptConfig& config) {
  const auto within = [](int value, int most, const char* what) {
    require(value >= 1 && value <= most, fmt::format("a model of {} {}", value, what),
            fmt::format("use 1 to {}", most));
  };
  within(config.layers, 1'000, "layers");
  within(config.heads, 1'000, "heads");
  within(config.width, 100'000, "width");
  within(config.context, 1 << 24, "context");
  within(config.vocabulary, 10'000'000, "vocabulary");
  require(config.width % config.heads == 0,
          fmt::format("the width {} is not divisible by {} heads", config.width, config.heads),
          "the width must be a multiple of the heads");
  require(config.kv_heads == 0 || (config.kv_heads > 0 && config.heads % config.kv_heads == 0),
          fmt::format("{} query heads are not a multiple of {} key/value heads", config.heads,
                      config.kv_heads),
          "the query heads must be a multiple of the key/value heads");
  require(config.layer_norm_epsilon > 0 && config.layer_norm_epsilon < 1,
          fmt::format("a layer_norm_epsilon of {}", config.layer_norm_epsilon),
          "use a number between 0 and 1");
  check(config.experts, config.layers);
}

bool is_same_model(const GptConfig& a, const GptConfig& b) {
  const auto numbers = [](const GptConfig& c) {
    return std::tuple(c.layers, c.heads, c.width, c.context, c.vocabulary, c.key_value_heads(),
                      c.layer_norm_epsilon);
  };
  return numbers(a) == numbers(b) && is_same_model(a.experts, b.experts);
}

GptConfig read_gpt_config(const std::string& path) {
  constexpr std::int64_t most_bytes = 1 << 20;
  return parse_gpt_config(read_text(path, most_bytes), path);
}

GptConfig parse_gpt_config(std::string_view text, const std::string& path) {
  const json file = parse_json(text, path);
  require(file.is_object(), fmt::format("{}: not a JSON object", path), "give a GPT-2 config.json");
  GptConfig config{.layers = integer(file, "n_layer", path),
                   .heads = integer(file, "n_head", path),
                   .width = integer(file, "n_embd", path),
                   .context = integer(file, "n_positions", path),
                   .vocabulary = integer(file, "vocab_size", path)};
  if (file.contains("num_key_value_heads") ||
      file.value("model_type", json()) == grouped_query_type)
    config.kv_heads = integer(file, "num_key_value_heads", path);
  if (file.contains("layer_norm_epsilon")) {
    require(file["layer_norm_epsilon"].is_number(),
            fmt::format("{}: \"layer_norm_epsilon\" is not a number", path));
    config.layer_norm_epsilon = file["layer_norm_epsilon"];
  }
  config.dropout = dropout_rates(file, path);
  config.experts = parse_experts(file, path);
  config.begin_token = special_token(file, "bos_token_id", path);
  config.end_token = special_token(file, "eos_token_id", path);
  refuse_other_models(file, config, path);
  try {
    check(config);
  } catch (const Error& error) {
    require(false, fmt::format("{}: {}", path, error.message()), error.context().hint);
  }
  return config;
}

GptConfig gpt_config(const std::string& preset_or_path) {
  const bool is_preset = std::ranges::count(presets, preset_or_path, &Preset::name) > 0;
  std::error_code none;
  const bool is_folder = !is_preset && std::filesystem::is_directory(preset_or_path, none);
  if (is_folder) {
    const std::string path = std::filesystem::path(preset_or_path) / "config.json";
    require(std::filesystem::exists(path, none),
            fmt::format("the folder {} has no config.json", preset_or_path),
            "name a folder with a model's config.json, such as one downloaded from Hugging Face");
    return read_gpt_config(path);
  }
  return is_preset || preset_or_path.find('.') == std::string::npos
             ? GptConfig::preset(preset_or_path)
             : read_gpt_config(preset_or_path);
}

bool is_known_to_hugging_face(const GptConfig& config) {
  return config.key_value_heads() == config.heads && !config.experts.exist();
}

std::string gpt_config_json(const GptConfig& c) {
  const auto special = [&](const std::string& token) -> nlohmann::ordered_json {
    if (!token.empty()) return nlohmann::ordered_json::parse(token);
    if (c.vocabulary > end_of_text) return end_of_text;
    return nullptr;
  };
  const bool is_known = is_known_to_hugging_face(c);
  nlohmann::ordered_json file = {{"model_type", is_known            ? "gpt2"
                                                : c.experts.exist() ? experts_type
                                                                    : grouped_query_type}};
  if (is_known) file["architectures"] = {"GPT2LMHeadModel"};
  file["n_layer"] = c.layers;
  file["n_head"] = c.heads;
  file["n_embd"] = c.width;
  file["n_positions"] = c.context;
  file["vocab_size"] = c.vocabulary;
  file["activation_function"] = "gelu_new";
  file["layer_norm_epsilon"] = c.layer_norm_epsilon;
  file["tie_word_embeddings"] = true;
  file["resid_pdrop"] = c.dropout.residual;
  file["embd_pdrop"] = c.dropout.embedding;
  file["attn_pdrop"] = c.dropout.attention;
  file["bos_token_id"] = special(c.begin_token);
  file["eos_token_id"] = special(c.end_token);
  // Not a key of GPT-2, but of Llama.
  if (c.kv_heads > 0) file["num_key_value_heads"] = c.kv_heads;
  add_experts(file, c.experts);
  return json_text(file);
}

}  // namespace lockstep
