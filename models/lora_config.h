// Low-rank adapters of linear layers (LoRA): their rank, their scale, and the layers that have them;
// as adapter_config.json of the library peft describes them. Hu et al., "LoRA: Low-rank adaptation of
// large language models", 2021; Kalajdzievski, "A rank stabilization scaling factor for fine-tuning
// with LoRA", 2023; Hayou et al., "LoRA+", 2024.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/packing.h"

namespace lockstep {

struct GptConfig;

struct LoraConfig {
  int rank = 0;  // 0: no layer has an adapter
  double alpha = 0;
  bool rank_stabilized = false;      // rsLoRA: the scale is alpha / sqrt(rank)
  std::vector<std::string> targets;  // ends of the names of the layers that have one
  double dropout = 0;                // of an adapter's input, in training
  double rate_ratio = 1;             // LoRA+: the learning rate of B over that of A; not in a file
  PackedFormat base = PackedFormat::none;  // how the frozen matrices are stored; not in a file

  bool exists() const { return rank > 0; }
  bool operator==(const LoraConfig&) const = default;
  double scale() const;
  // Whether the layer "h.0.attn.c_attn" has an adapter: a target is its name, or ends it at a dot.
  bool adapts(std::string_view layer) const;
  // r (in + out) for each layer that has one.
  std::int64_t parameter_count(const GptConfig& model) const;
  // Whether any layer below the linear layer "h.3.mlp.c_fc" has one: else its input needs no gradient.
  bool trains_below(std::string_view layer) const;
};

// The targets that there are: "c_proj" is a layer of the attention and one of the mlp.
const std::vector<std::string>& lora_targets();
// "c_attn,c_fc" as a list. Throws Error (bad_input) for a target that no layer has, or one twice.
std::vector<std::string> lora_targets_from(std::string_view text);

// Throws Error (bad_input) that names the flag and the range if the model cannot have these adapters.
void check(const LoraConfig& lora, const GptConfig& model);

// adapter_config.json. Reading throws Error (bad_input) naming the key that is missing, or that asks
// for an adapter of another kind.
LoraConfig read_lora_config(const std::string& path);
std::string lora_config_json(const LoraConfig& lora);

}  // namespace lockstep
