#include "models/gpt/activation_bytes.h"

#include <algorithm>

#include "models/ops/narrow_types.h"

namespace lockstep {

Count total(const std::vector<TensorBytes>& tensors) {
  Count sum = 0;
  for (const TensorBytes& tensor : tensors) sum += tensor.bytes;
  return sum;
}

ActivationBytes::ActivationBytes(const GptConfig& config, Count rows, DType dtype,
                                 const LayerSplit& split, const ModelOptions& options,
                                 const HeadSplit& heads)
    : config_(config),
      dtype_(dtype),
      rows_(rows),
      outer_rows_(split.outer_rows(rows)),
      width_(config.width),
      element_(element_bytes(dtype)),
      statistic_(element_bytes(statistics_type(dtype))),
      split_(split),
      options_(options),
      heads_(heads.share(split.heads(config.heads), split.kv_heads(config.key_value_heads()))),
      attention_rows_(rows * heads.ranks) {}

TensorBytes ActivationBytes::of_outer(const char* name) const {
  return {.name = name, .shape = "n C", .bytes = outer()};
}

TensorBytes ActivationBytes::of_all(const char* name, Count columns, const char* shape) const {
  return {.name = name, .shape = shape, .bytes = rows_ * columns * element_};
}

TensorBytes ActivationBytes::of_chosen(const char* name) const {
  return {.name = name,
          .shape = "n K C",
          .bytes = config_.experts.most_rows(outer_rows_) * width_ * element_};
}

TensorBytes ActivationBytes::of_experts(const char* name, Count columns, const char* shape) const {
  const ExpertSplit& split = split_.experts;
  const Count rows = split.is_divided() ? config_.experts.most_rows(split)
                                        : config_.experts.most_rows(outer_rows_);
  return {.name = name, .shape = shape, .bytes = rows * columns * element_};
}

TensorBytes ActivationBytes::statistics(const char* name, Count number, const char* shape) const {
  return {.name = name, .shape = shape, .bytes = number * statistic_};
}

Count ActivationBytes::outer() const { return outer_rows_ * width_ * element_; }

Count ActivationBytes::own_part() const {
  return Parts(outer_rows_ * width_, split_.ranks)[split_.rank] * element_;
}

Count ActivationBytes::kept_input() const {
  switch (options_.kept_input) {
    case KeptInput::whole:
      return outer();
    case KeptInput::part:
      return own_part();
    case KeptInput::offloaded:
      return 0;
  }
  return 0;
}

std::vector<TensorBytes> ActivationBytes::attention() const {
  const Count heads = split_.heads(config_.heads);
  return {of_all("attention.out", heads * config_.head_size(), "N C/t"),
          statistics("attention.log_sum_exp", attention_rows_ * heads_.count, "N heads/t")};
}

TensorBytes ActivationBytes::normed(const char* name) const {
  const bool gathered = split_.by_sequence && split_.keeps_gathered;
  return gathered ? of_all(name, width_, "N C") : of_outer(name);
}

std::vector<TensorBytes> ActivationBytes::mlp(bool has_experts) const {
  if (!has_experts) {
    std::vector<TensorBytes> dense;
    if (keeps_input("mlp.c_fc")) dense.push_back(normed("normed_2"));
    dense.push_back(of_all("hidden", 4 * width_ / split_.ranks, "N 4C/t"));
    if (keeps_input("mlp.c_proj"))
      dense.push_back(of_all("activated", 4 * width_ / split_.ranks, "N 4C/t"));
    return dense;
  }
  const ExpertConfig& e = config_.experts;
  const Count hidden = split_.experts.hidden(e.width);
  std::vector<TensorBytes> tensors = {
      e.shared > 0 ? normed("normed_2") : of_outer("normed_2"),
      statistics("scores", outer_rows_ * e.number, "n E"),
      of_experts("experts.input", width_, "R C"),
      of_experts("experts.hidden", hidden, "R f"),
      of_experts("experts.activated", hidden, "R f"),
  };
  if (split_.experts.weights_at_experts)
    tensors.push_back({.name = "experts.biases",
                       .shape = "E/P C",
                       .bytes = split_.experts.experts(e.number) * width_ * element_});
  else
    tensors.push_back(of_chosen("made"));
  if (e.shared > 0)
    for (const char* name : {"shared.hidden", "shared.activated"})
      tensors.push_back(of_all(name, e.shared_width() / split_.ranks, "N S f/t"));
  return tensors;
}

std::vector<TensorBytes> ActivationBytes::block() const {
  const Count columns = (heads_.count + 2 * heads_.kv_count) * config_.head_size();
  std::vector<TensorBytes> tensors = {
      of_outer("input"),
      statistics("norm_1", 2 * outer_rows_, "2 n"),
  };
  if (keeps_input("attn.c_attn")) tensors.push_back(normed("normed_1"));
  tensors.push_back(
      {.name = "qkv", .shape = "N (C + 2 C_kv)/t", .bytes = attention_rows_ * columns * element_});
  for (TensorBytes& tensor : attention()) tensors.push_back(std::move(tensor));
  tensors.push_back(of_outer("middle"));
  tensors.push_back(statistics("norm_2", 2 * outer_rows_, "2 n"));
  return tensors;
}

std::vector<TensorBytes> ActivationBytes::block_gradients(bool of_attention) const {
  if (!of_attention)
    return {of_outer("output"), of_outer("normed_2"), of_outer("middle"), of_outer("normed_1")};
  const Count qkv = (split_.heads(config_.heads) + 2 * split_.kv_heads(config_.key_value_heads())) *
                    config_.head_size();
  std::vector<TensorBytes> tensors = {of_outer("output"), of_outer("normed_2"), of_outer("middle"),
                                      of_all("qkv", qkv, "N (C + 2 C_kv)/t"), of_outer("normed_1")};
  if (has_products()) tensors.push_back(of_all("projected", width_, "N C"));
  return tensors;
}

std::vector<TensorBytes> ActivationBytes::mlp_gradients(bool has_experts) const {
  if (!has_experts) {
    std::vector<TensorBytes> tensors = {of_all("hidden", 4 * width_ / split_.ranks, "N 4C/t")};
    if (has_products()) tensors.push_back(of_all("contracted", width_, "N C"));
    return tensors;
  }
  const ExpertConfig& e = config_.experts;
  std::vector<TensorBytes> tensors = {
      statistics("products", outer_rows_ * e.per_token, "n K"),
      {.name = "scores", .shape = "n E", .bytes = outer_rows_ * e.number * element_},
      of_experts("experts.hidden", split_.experts.hidden(e.width), "R f"),
  };
  if (!split_.experts.weights_at_experts)
    for (const char* name : {"made", "gathered"}) tensors.push_back(of_chosen(name));
  if (split_.experts.is_divided()) tensors.push_back(of_experts("experts.made", width_, "R C"));
  if (e.shared > 0) {
    tensors.push_back(of_all("shared.hidden", e.shared_width() / split_.ranks, "N S f/t"));
    // Dropout comes after the sum of all experts.
    if (split_.by_sequence) tensors.push_back(of_all("shared.contracted", width_, "N C"));
  }
  if (options_.dropout.rate > 0) tensors.push_back(of_outer("undropped"));
  return tensors;
}

std::vector<TensorBytes> ActivationBytes::head() const {
  std::vector<TensorBytes> tensors = {
      of_outer("head.input"),
      of_all("logits", padded_columns(split_.vocabulary(config_.vocabulary), dtype_), "N V/t"),
      statistics("head.norm", 2 * outer_rows_, "2 n")};
  if (!options_.lora.exists()) tensors.insert(tensors.begin() + 1, normed("head.normed"));
  return tensors;
}

Count ActivationBytes::kept_of_block() const {
  switch (options_.recompute) {
    case Recompute::none:
      return total(block());
    case Recompute::selective:
      return total(block()) - total(attention());
    case Recompute::full:
      return kept_input();
  }
  return 0;
}

Count ActivationBytes::kept_of_mlp(bool has_experts) const {
  return options_.recompute == Recompute::full ? 0 : total(mlp(has_experts));
}

std::vector<bool> ActivationBytes::kinds_of(StageLayers layers) const {
  const int with_experts = config_.experts.layers_among(layers.first, layers.count);
  std::vector<bool> kinds;
  if (with_experts < layers.count) kinds.push_back(false);
  if (with_experts > 0) kinds.push_back(true);
  return kinds;
}

Count ActivationBytes::shared(StageLayers layers) const {
  Count mlps = 0;
  for (const bool kind : kinds_of(layers)) mlps += total(mlp(kind));
  switch (options_.recompute) {
    case Recompute::none:
      return 0;
    case Recompute::selective:
      return total(attention());
    case Recompute::full:
      // If its input is kept elsewhere, the input of the block being computed is also shared.
      return total(block()) - (options_.kept_input == KeptInput::whole ? outer() : 0) + mlps;
  }
  return 0;
}

Count ActivationBytes::shared_with_adapters(bool has_head) const {
  if (!options_.lora.exists()) return 0;
  const bool has_columns = has_head || !keeps_input("attn.c_attn") || !keeps_input("mlp.c_fc");
  return rows_ * options_.lora.rank * element_ + dropped_and_unpacked() +
         (has_columns ? normed("").bytes : 0) +
         (keeps_input("mlp.c_proj") ? 0 : rows_ * 4 * width_ / split_.ranks * element_);
}

// The largest one of each.
Count ActivationBytes::dropped_and_unpacked() const {
  const LoraConfig& lora = options_.lora;
  const Count hidden = 4 * width_ / split_.ranks;
  Count columns = 0;
  if (lora.adapts("attn.c_proj")) columns = width_ / split_.ranks;
  if (lora.adapts("attn.c_attn") || lora.adapts("mlp.c_fc")) columns = width_;
  if (lora.adapts("mlp.c_proj")) columns = std::max(columns, hidden);
  return ((lora.dropout > 0 ? rows_ * columns : 0) +
          (lora.base != PackedFormat::none ? width_ * hidden : 0)) *
         element_;
}

Count ActivationBytes::of_whole_model() const {
  const Count next_gradient = config_.layers > 1 ? outer() : 0;
  const Count made_again = options_.recompute == Recompute::full ? outer() : 0;  // a block's output
  const StageLayers all{.first = 0, .count = config_.layers};
  Count mlps = 0;
  for (int i = 0; i < all.count; ++i) mlps += kept_of_mlp(config_.experts.in_layer(i));
  for (const bool kind : kinds_of(all)) mlps += total(mlp_gradients(kind));
  return shared_with_adapters(true) + config_.layers * kept_of_block() + mlps + shared(all) +
         made_again + total(head()) + total(block_gradients()) + next_gradient + 2 * outer();
}

}  // namespace lockstep
