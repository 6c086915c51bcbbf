#include "models/layers/layer_factory.h"

#include <fmt/format.h>

#include "models/layers/dense_mlp.h"
#include "models/layers/mixture.h"
#include "models/layers/self_attention.h"

namespace lockstep {

AttentionParts attention_parts(const LayerFactory& factory, Parameters& parameters, int layer,
                               const GptConfig& config, const MaskOptions& masks) {
  const std::string name = fmt::format("h.{}.attn.", layer);
  auto products = factory.queries_keys_values(parameters, name + "c_attn", config);
  auto projection = factory.row(parameters, name + "c_proj", config.width, config.width);
  return {.queries_keys_values = std::move(products),
          .projection = std::move(projection),
          .heads = factory.split().heads(config.heads),
          .kv_heads = factory.split().kv_heads(config.key_value_heads()),
          .head_size = config.head_size(),
          .masks = Masks(masks, factory.split()),
          .layer = layer};
}

std::unique_ptr<Attention> LayerFactory::attention(Parameters& parameters, int layer,
                                                   const GptConfig& config,
                                                   const MaskOptions& masks) const {
  return std::make_unique<SelfAttention>(attention_parts(*this, parameters, layer, config, masks));
}

std::unique_ptr<Mlp> LayerFactory::mlp(Parameters& parameters, int layer, const GptConfig& config,
                                       const MaskOptions& masks) const {
  const std::string name = fmt::format("h.{}.mlp.", layer);
  if (config.experts.in_layer(layer))
    return std::make_unique<Mixture>(
        parameters, name, config, Masks(masks, split()), layer, [&](const std::string& of) {
          return std::make_unique<Experts>(parameters, of, config, Range{0, config.experts.number});
        });
  const Count hidden = 4 * config.width;
  auto expand = column(parameters, name + "c_fc", config.width, hidden);
  auto contract = row(parameters, name + "c_proj", hidden, config.width);
  return std::make_unique<DenseMlp>(std::move(expand), std::move(contract), hidden / split().ranks,
                                    Masks(masks, split()), layer);
}

}  // namespace lockstep
