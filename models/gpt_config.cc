#include "models/gpt_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

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
constexpr Preset presets[] = {
    {"nano", {.layers = 4, .heads = 4, .width = 128, .context = 64, .vocabulary = byte_vocabulary}},
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

// Refuses a model that computes something else. A key that is absent or null has GPT-2's default.
void expect(const json& file, const char* key, const json& known, const std::string& path) {
  if (!file.contains(key) || file[key].is_null()) return;
  require(file[key] == known, fmt::format("{}: \"{}\" is {}", path, key, shown(file[key])),
          fmt::format("only {} is known", shown(known)));
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
  const Count block = (9 * c * c + 10 * c) + qkv_width() * (c + 1);
  return Count{vocabulary} * c + Count{context} * c + layers * block + 2 * c;
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
          fmt::format("a width of {} in {} heads", config.width, config.heads),
          "the width must be a multiple of the heads");
  require(config.kv_heads == 0 || (config.kv_heads > 0 && config.heads % config.kv_heads == 0),
          fmt::format("{} heads with {} of keys and values", config.heads, config.kv_heads),
          "the heads must be a multiple of those of keys and values");
  require(config.layer_norm_epsilon > 0 && config.layer_norm_epsilon < 1,
          fmt::format("a layer_norm_epsilon of {}", config.layer_norm_epsilon),
          "use a number between 0 and 1");
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
  if (file.contains("num_key_value_heads"))
    config.kv_heads = integer(file, "num_key_value_heads", path);
  if (file.contains("layer_norm_epsilon")) {
    require(file["layer_norm_epsilon"].is_number(),
            fmt::format("{}: \"layer_norm_epsilon\" is not a number", path));
    config.layer_norm_epsilon = file["layer_norm_epsilon"];
  }
  expect(file, "model_type", "gpt2", path);
  expect(file, "activation_function", "gelu_new", path);
  expect(file, "tie_word_embeddings", true, path);
  expect(file, "scale_attn_weights", true, path);
  expect(file, "scale_attn_by_inverse_layer_idx", false, path);
  expect(file, "add_cross_attention", false, path);
  expect(file, "n_inner", 4 * Count{config.width}, path);
  try {
    check(config);
  } catch (const Error& error) {
    require(false, fmt::format("{}: {}", path, error.message()), error.context().hint);
  }
  return config;
}

GptConfig gpt_config(const std::string& preset_or_path) {
  return preset_or_path.find('.') == std::string::npos ? GptConfig::preset(preset_or_path)
                                                       : read_gpt_config(preset_or_path);
}

std::string gpt_config_json(const GptConfig& c) {
  nlohmann::ordered_json file = {{"model_type", "gpt2"},
                                 {"architectures", {"GPT2LMHeadModel"}},
                                 {"n_layer", c.layers},
                                 {"n_head", c.heads},
                                 {"n_embd", c.width},
                                 {"n_positions", c.context},
                                 {"vocab_size", c.vocabulary},
                                 {"activation_function", "gelu_new"},
                                 {"layer_norm_epsilon", c.layer_norm_epsilon},
                                 {"tie_word_embeddings", true},
                                 {"resid_pdrop", 0.0},
                                 {"embd_pdrop", 0.0},
                                 {"attn_pdrop", 0.0}};
  // Not a key of GPT-2, but of Llama.
  if (c.kv_heads > 0) file["num_key_value_heads"] = c.kv_heads;
  return json_text(file);
}

}  // namespace lockstep
