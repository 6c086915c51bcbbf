// The closed forms of activation memory, tensor by tensor, for the layers of models/layers.
// Differences from Korthikanti et al., 2022: attention in blocks keeps no probabilities, masks are
// drawn again instead of kept, and every tensor has the model's type.
#pragma once

#include <string>
#include <vector>

#include "models/gpt/gpt_stage.h"

namespace lockstep {

struct TensorBytes {
  std::string name, shape;  // N rows, n of them outside of split layers, t ranks; V/t is padded
  Count bytes = 0;
};
Count total(const std::vector<TensorBytes>& tensors);

class ActivationBytes {
 public:
  // The activations of micro-batches of `rows` rows.
  ActivationBytes(const GptConfig& config, Count rows, DType dtype, const LayerSplit& split = {},
                  const ModelOptions& options = {}, const HeadSplit& heads = {});

  // The tensors that a forward pass keeps for one block without its mlp, in the order in which it makes
  // them; and those of an mlp, dense or with experts.
  std::vector<TensorBytes> block() const;
  std::vector<TensorBytes> attention() const;
  std::vector<TensorBytes> mlp(bool has_experts) const;
  // The tensors that backward adds for them; fewer where it ends in the mlp of the first block.
  std::vector<TensorBytes> block_gradients(bool of_attention = true) const;
  std::vector<TensorBytes> mlp_gradients(bool has_experts) const;
  std::vector<TensorBytes> head() const;
  // [n, C], such as the gradient that a head or an embedding keeps.
  Count outer() const;
  // This rank's part of outer(), if the ranks of the layer split share the memory; and the part of
  // an input that a rank keeps for recomputation.
  Count own_part() const;
  Count kept_input() const;

  // Bytes of one block and of its mlp in flight, and bytes shared by all blocks of a stage, with
  // recomputation. Does not cover `full` recomputation of a whole pipeline stage.
  Count kept_of_block() const;
  Count kept_of_mlp(bool has_experts) const;
  Count shared(StageLayers layers) const;
  // Bytes that all layers of a rank share with adapters: of their products and dropped inputs, of a packed
  // matrix in use, and of inputs that backward does not need. A rank with the last stage also has the
  // head.
  Count shared_with_adapters(bool has_head) const;
  // The peak of a stage with that many layers, with whole backward passes and one micro-batch at a
  // time.
  Count of_whole_model() const;

 private:
  Count dropped_and_unpacked() const;
  TensorBytes of_outer(const char* name) const;
  TensorBytes of_all(const char* name, Count columns, const char* shape) const;
  // The rows that this rank's tokens send to experts: N K, or fewer with a capacity; and those of this
  // rank's experts, R of them, which are others if ranks divide the experts.
  TensorBytes of_chosen(const char* name) const;
  TensorBytes of_experts(const char* name, Count columns, const char* shape) const;
  TensorBytes statistics(const char* name, Count number, const char* shape) const;
  // Whether backward keeps the gradients of products apart from those of their sums.
  bool has_products() const { return split_.by_sequence || options_.dropout.rate > 0; }
  // Whether the input of such a layer is kept for the gradients of its weights or of its adapter.
  bool keeps_input(const char* layer) const {
    return !options_.lora.exists() || options_.lora.adapts(layer);
  }
  // The input of a split layer.
  TensorBytes normed(const char* name) const;
  // The kinds of mlp that these layers have.
  std::vector<bool> kinds_of(StageLayers layers) const;

  const GptConfig config_;
  DType dtype_;
  Count rows_, outer_rows_, width_, element_, statistic_;
  LayerSplit split_;
  ModelOptions options_;
  HeadShare heads_;       // the heads of the attention
  Count attention_rows_;  // the attention's rows
};

}  // namespace lockstep
