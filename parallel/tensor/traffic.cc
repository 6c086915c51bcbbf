#include "parallel/tensor/traffic.h"

#include <fmt/format.h>

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/reduce_scatter/reduce_scatter.h"
#include "models/ops/narrow_types.h"
#include "parallel/tensor/ranks.h"

namespace lockstep {
LabelledTraffic tensor_traffic(const TensorWork& work) {
  const LayerSplit& split = work.split;
  const int t = split.ranks, rank = split.rank, layers = work.layers.count;
  const bool is_first = work.layers.first == 0;
  const bool is_last = work.layers.first + layers == work.config.layers;
  const ExpertConfig& experts = work.config.experts;
  // Experts that are not shared exchange their rows on their own.
  const int products =
      2 * layers -
      (experts.shared > 0 ? 0 : experts.layers_among(work.layers.first, work.layers.count));
  const int forward_passes = work.options.recompute == Recompute::full ? 2 : 1;
  const int forward_passes_of_ends = work.stage_again ? forward_passes : 1;
  const bool gathers_again = split.by_sequence && !split.keeps_gathered;
  // With adapters, only theirs need inputs again, and neither the embedding nor the head a gradient.
  const LoraConfig& lora = work.options.lora;
  const int products_again =
      lora.exists() ? layers * (lora.adapts("attn.c_attn") + lora.adapts("mlp.c_fc")) : products;
  // Backward ends at the first adapter, in the first layer: f and g that it does not reach.
  const bool is_cut = lora.exists() && is_first,
             cuts_mlp = is_cut && !lora.trains_below("h.0.mlp.c_fc");
  const auto reduced = [&](Count count) {
    return find_algorithm(all_reduce_algorithms(), "all_reduce", "ring")
        .traffic({.ranks = t, .count = count}, rank);
  };

  LabelledTraffic traffic;
  for (const Count rows : work.rows) {
    const Count count = rows * work.config.width;
    const Traffic gather = ring_all_gather_traffic(count, t, rank);
    const Traffic scatter = ring_reduce_scatter_traffic(count, t, rank);
    // The traffic of f and g, once each, in either direction.
    const Traffic entering = split.by_sequence ? gather : Traffic{};
    const Traffic leaving = split.by_sequence ? scatter : reduced(count);
    const Traffic again = gathers_again ? gather : Traffic{};
    traffic[TensorRanks::forward_label] += products * forward_passes * (entering + leaving);
    traffic[TensorRanks::backward_label] += (products - cuts_mlp) * entering +
                                            (products - is_cut - cuts_mlp) * leaving +
                                            products_again * again;
    // The first stage is recomputed from its tokens.
    if (work.options.kept_input != KeptInput::whole)
      traffic[TensorRanks::inputs_label] +=
          (work.stage_again ? (is_first ? 0 : 1) : layers) * gather;
    if (is_first)
      traffic[TensorRanks::embedding_label] +=
          forward_passes_of_ends * leaving + (lora.exists() ? Traffic{} : entering);
    if (!is_last) continue;
    traffic[TensorRanks::head_label] +=
        forward_passes_of_ends * entering + leaving + (lora.exists() ? Traffic{} : again);
    const int sums = work.options.label_smoothing > 0 ? 3 : 2;
    traffic[TensorRanks::loss_label] +=
        forward_passes_of_ends * (reduced(rows) + reduced(sums * rows));
  }
  return traffic;
}

Count element_bytes_of(std::string_view label, DType dtype) {
  return element_bytes(label == TensorRanks::loss_label ? statistics_type(dtype) : dtype);
}

Count tensor_scratch_bytes(const GptConfig& config, const LayerSplit& split, Count rows,
                           DType dtype, bool smooths_labels, bool has_first_stage,
                           bool has_last_stage, bool trains_embedding) {
  if (split.ranks == 1) return 0;
  const Count all = rows * config.width * element_bytes(dtype);
  // Layers that keep gathered rows do not gather them again, except for the embedding's gradient.
  const bool gathers = !split.keeps_gathered || (has_first_stage && trains_embedding);
  const Count gathered = split.by_sequence && gathers ? all : 0;
  const Count partial = split.by_sequence ? all : 0;
  const Count statistics = rows * (smooths_labels ? 4 : 3) * element_bytes(statistics_type(dtype));
  return gathered + partial + (has_last_stage ? statistics : 0);
}

namespace {

// `times` of a layer: half of it for the attention, half for the mlp.
std::string formula_of_layers(const GptConfig& config, int times) {
  const bool differ = config.experts.exist() && config.experts.shared == 0;
  return fmt::format("{}(t-1)/t * tokens * C * beta * {}", differ ? times / 2 : times,
                     differ ? "(attentions + mlps without experts)" : "layers");
}

}  // namespace

std::string forward_formula(const GptConfig& config, const ModelOptions& options) {
  return formula_of_layers(config, options.recompute == Recompute::full ? 8 : 4);
}

std::string backward_formula(const GptConfig& config, const LayerSplit& split) {
  return formula_of_layers(config, split.by_sequence && !split.keeps_gathered ? 6 : 4);
}

}  // namespace lockstep
