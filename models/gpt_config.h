// The size of a GPT, from a preset or a config.json in the format of Hugging Face's GPT-2.
#pragma once

#include <string>
#include <string_view>

#include "collectives/base/dtype.h"

namespace lockstep {

struct GptConfig {
  int layers = 0, heads = 0, width = 0, context = 0, vocabulary = 0;
  int kv_heads = 0;  // of keys and values; 0: as many as heads. See AttentionShape
  double layer_norm_epsilon = 1e-5;

  int key_value_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  Count head_size() const { return width / heads; }
  // Columns of queries, keys and values together.
  Count qkv_width() const { return width + 2 * key_value_heads() * head_size(); }

  // nano, small, gpt2, gpt3. Throws Error (bad_input) that lists them for another name.
  static GptConfig preset(std::string_view name);
  // Parameters of the model; the tied head counts once.
  Count parameter_count() const;
};

// Throws Error (bad_input) that names the field and its range.
void check(const GptConfig& config);

// Reads a config.json. Throws Error (bad_input) naming the file and the key that is missing, unknown
// or out of range.
GptConfig read_gpt_config(const std::string& path);
// The same for the text of a file that errors call `path`.
GptConfig parse_gpt_config(std::string_view text, const std::string& path);
// The preset of that name, or the config.json at that path. Throws like these.
GptConfig gpt_config(const std::string& preset_or_path);
// The text of a config.json.
std::string gpt_config_json(const GptConfig& config);

}  // namespace lockstep
