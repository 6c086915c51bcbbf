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
  const Count of_keys = config.key_value_heads() * config.head_size();
  parameters.make_hidden(name + "c_attn.weight", config.width, {config.width, of_keys, of_keys});
  parameters.make_hidden(name + "c_proj.weight", config.width, {config.width});
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

std::unique_ptr<Experts> LayerFactory::experts(Parameters& parameters, const std::string& name,
                                               const GptConfig& config) const {
  return std::make_unique<Experts>(
      parameters, name, config,
      ExpertPart{.experts = {0, config.experts.number}, .hidden = {0, config.experts.width}});
}

std::unique_ptr<Mlp> LayerFactory::mlp(Parameters& parameters, int layer, const GptConfig& config,
                                       const MaskOptions& masks) const {
  const std::string name = fmt::format("h.{}.mlp.", layer);
  const Masks own(masks, split());
  if (config.experts.in_layer(layer))
    return std::make_unique<Mixture>(*this, parameters, name, config, own, layer);
  return std::make_unique<DenseMlp>(*this, parameters, name, config.width, 4 * config.width, own,
                                    layer);
}

}  // namespace lockstep
