#include "models/layers/layer_factory.h"

#include <fmt/format.h>

#include "models/layers/dense_mlp.h"
#include "models/layers/self_attention.h"

namespace lockstep {

std::unique_ptr<Attention> LayerFactory::attention(Parameters& parameters, int layer,
                                                   const GptConfig& config,
                                                   const MaskOptions& masks) const {
  const std::string name = fmt::format("h.{}.attn.", layer);
  auto products = queries_keys_values(parameters, name + "c_attn", config);
  auto projection = row(parameters, name + "c_proj", config.width, config.width);
  const AttentionHeads heads{.queries = split().heads(config.heads),
                             .keys = split().kv_heads(config.key_value_heads()),
                             .size = config.head_size()};
  return std::make_unique<SelfAttention>(std::move(products), std::move(projection), heads,
                                         Masks(masks, split()), layer);
}

std::unique_ptr<Mlp> LayerFactory::mlp(Parameters& parameters, int layer, const GptConfig& config,
                                       const MaskOptions& masks) const {
  const std::string name = fmt::format("h.{}.mlp.", layer);
  const Count hidden = 4 * config.width;
  auto expand = column(parameters, name + "c_fc", config.width, hidden);
  auto contract = row(parameters, name + "c_proj", hidden, config.width);
  return std::make_unique<DenseMlp>(std::move(expand), std::move(contract), hidden / split().ranks,
                                    Masks(masks, split()), layer);
}

}  // namespace lockstep
