#include "models/gpt/activation_bytes.h"

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

std::vector<TensorBytes> ActivationBytes::block() const {
  const auto normed = [&](const char* name) {
    const bool gathered = split_.by_sequence && split_.keeps_gathered;
    return gathered ? of_all(name, width_, "N C") : of_outer(name);
  };
  const Count columns = (heads_.count + 2 * heads_.kv_count) * config_.head_size();
  std::vector<TensorBytes> tensors = {
      of_outer("input"),
      statistics("norm_1", 2 * outer_rows_, "2 n"),
      normed("normed_1"),
      {.name = "qkv", .shape = "N (C + 2 C_kv)/t", .bytes = attention_rows_ * columns * element_},
      of_outer("middle"),
      statistics("norm_2", 2 * outer_rows_, "2 n"),
      normed("normed_2"),
      of_all("hidden", 4 * width_ / split_.ranks, "N 4C/t"),
      of_all("activated", 4 * width_ / split_.ranks, "N 4C/t"),
  };
  for (TensorBytes& tensor : attention()) tensors.push_back(std::move(tensor));
  return tensors;
}

std::vector<TensorBytes> ActivationBytes::block_gradients() const {
  const std::vector<TensorBytes> forward = block();
  const auto like = [&](const char* name) {
    for (const TensorBytes& tensor : forward)
      if (tensor.name == name) return tensor;
    return TensorBytes{};
  };
  const Count qkv = (split_.heads(config_.heads) + 2 * split_.kv_heads(config_.key_value_heads())) *
                    config_.head_size();
  std::vector<TensorBytes> tensors = {of_outer("output"),
                                      like("hidden"),
                                      of_outer("normed_2"),
                                      of_outer("middle"),
                                      of_all("qkv", qkv, "N (C + 2 C_kv)/t"),
                                      of_outer("normed_1")};
  if (split_.by_sequence || options_.dropout.rate > 0)
    for (const char* name : {"contracted", "projected"})
      tensors.push_back(of_all(name, width_, "N C"));
  return tensors;
}

std::vector<TensorBytes> ActivationBytes::head() const {
  const bool gathered = split_.by_sequence && split_.keeps_gathered;
  return {of_outer("head.input"),
          gathered ? of_all("head.normed", width_, "N C") : of_outer("head.normed"),
          of_all("logits", padded_columns(split_.vocabulary(config_.vocabulary), dtype_), "N V/t"),
          statistics("head.norm", 2 * outer_rows_, "2 n")};
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

Count ActivationBytes::shared() const {
  switch (options_.recompute) {
    case Recompute::none:
      return 0;
    case Recompute::selective:
      return total(attention());
    case Recompute::full:
      // If its input is kept elsewhere, the input of the block being computed is also shared.
      return total(block()) - (options_.kept_input == KeptInput::whole ? outer() : 0);
  }
  return 0;
}

Count ActivationBytes::of_whole_model() const {
  const Count next_gradient = config_.layers > 1 ? outer() : 0;
  const Count made_again = options_.recompute == Recompute::full ? outer() : 0;  // a block's output
  return config_.layers * kept_of_block() + shared() + made_again + total(head()) +
         total(block_gradients()) + next_gradient + 2 * outer();
}

}  // namespace lockstep
