// The size of a GPT, from a preset or a config.json in the format of Hugging Face's GPT-2.
#pragma once

#include <string>
#include <string_view>

#include "models/expert_config.h"

namespace lockstep {

// The dropout rates of a model's config.json: resid_pdrop, embd_pdrop and attn_pdrop.
struct DropoutRates {
  double residual = 0, embedding = 0, attention = 0;

  bool operator==(const DropoutRates&) const = default;
};

struct GptConfig {
  int layers = 0, heads = 0, width = 0, context = 0, vocabulary = 0;
  int kv_heads = 0;  // key/value heads; 0: as many as heads. See AttentionShape
  double layer_norm_epsilon = 1e-5;
  ExpertConfig experts = {};
  DropoutRates dropout = {};  // in training, unless an option says otherwise
  // bos_token_id and eos_token_id as JSON, which are only passed through. Empty: GPT-2's, if the
  // vocabulary has it.
  std::string begin_token = {}, end_token = {};

  int key_value_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  Count head_size() const { return width / heads; }
  // Columns of queries, keys and values together.
  Count qkv_width() const { return width + 2 * key_value_heads() * head_size(); }

  // nano, nano-moe, small, gpt2, gpt3. Throws Error (bad_input) that lists them for another name.
  static GptConfig preset(std::string_view name);
  // Parameters of the model; the tied head counts once.
  Count parameter_count() const;
};

// Throws Error (bad_input) that names the field and its range.
void check(const GptConfig& config);

// Whether their weights have the same shapes and meaning.
bool is_same_model(const GptConfig& a, const GptConfig& b);

// Reads a config.json. Throws Error (bad_input) naming the file and the key that is missing, out of
// range, or that asks for a different computation.
GptConfig read_gpt_config(const std::string& path);
// The same for the text of a file that errors call `path`.
GptConfig parse_gpt_config(std::string_view text, const std::string& path);
// The preset of that name, the config.json at that path, or the one in that folder. Throws like
// these.
GptConfig gpt_config(const std::string& preset_or_path);
// The text of a config.json. Hugging Face's GPT-2 has as many key/value heads as query heads: with
// fewer, the model_type is gpt2-gqa, and with experts gpt2-moe, which its library refuses by name.
std::string gpt_config_json(const GptConfig& config);
bool is_known_to_hugging_face(const GptConfig& config);

}  // namespace lockstep
