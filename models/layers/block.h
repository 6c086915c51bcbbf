// One transformer block, pre-LN: x + attention(norm(x)), then that + mlp(norm(that)).
#pragma once

#include <memory>

#include "models/gpt_config.h"
#include "models/layers/layer_factory.h"

namespace lockstep {

// What backward needs of a forward pass, in addition to the input. n of N rows are this rank's
// outside of the split layers.
struct BlockActivations {
  LayerNormStash norm_1, norm_2;
  AttentionActivations attention;
  Tensor middle;  // [n, C] after the attention's residual
  MlpActivations mlp;
};

// What backward_input leaves for backward_weight: gradients of the block's output and of what
// forward made.
struct BlockGradients {
  Tensor output, normed_2, middle, normed_1;  // [n, C]
  MlpGradients mlp;
  AttentionGradients attention;
};

// Of one micro-batch. Any number of them can be in flight, each with its own; the gradients are
// needed from backward_input on.
struct BlockStash {
  Rows rows;
  Tensor input;  // [n, C]
  BlockActivations kept;
  BlockGradients gradients;
};

class Block {
 public:
  Block(Parameters& parameters, int layer, const GptConfig& config, const MaskOptions& masks,
        const LayerFactory& factory);

  // Memory for stash.input of these rows, `outer` of them this rank's outside of the split layers.
  void prepare(BlockStash& stash, const Rows& rows, Count outer, DType dtype, Ledger& ledger) const;
  // Reads stash.input, which the caller has filled, and writes out[n, C].
  void forward(Backend& backend, Slice out, BlockStash& stash, Ledger& ledger) const;
  // The attention's output alone, made again.
  void attend(Backend& backend, BlockStash& stash, Ledger& ledger) const;

  enum class Weights : std::uint8_t { later, now };
  // dx = the gradient of the input, given that of the output in stash.gradients.output. dx may be
  // the memory of another stash's. With `now` it also adds to the gradients of the weights, while
  // it waits for other ranks.
  void backward_input(Backend& backend, Slice dx, BlockStash& stash, Ledger& ledger,
                      Weights weights) const;
  // Adds to the gradients of the weights. After it the stash may be used for another micro-batch.
  void backward_weight(Backend& backend, const BlockStash& stash) const;

  int first_parameter() const { return norm_1_.weight(); }
  int last_parameter() const { return mlp_->last_parameter(); }

 private:
  void attention_weights(Backend& backend, const BlockStash& stash) const;
  void mlp_weights(Backend& backend, const BlockStash& stash) const;
  void norm_weights(Backend& backend, const BlockStash& stash) const;

  Count width_;
  LayerNorm norm_1_;
  std::unique_ptr<Attention> attention_;
  LayerNorm norm_2_;
  std::unique_ptr<Mlp> mlp_;
};

}  // namespace lockstep
