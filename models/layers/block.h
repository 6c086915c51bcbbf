// One transformer block, pre-LN: y = x + attention(norm(x)), then y + mlp(norm(y)).
#pragma once

#include <memory>

#include "models/gpt_config.h"
#include "models/layers/layer_factory.h"

namespace lockstep {

// The tensors of a forward pass that backward needs, in addition to the input. N rows, n of them
// this rank's outside of split layers.
struct BlockActivations {
  LayerNormStash norm_1, norm_2;
  AttentionStash attention;
  Tensor middle;  // [n, C] after the attention's residual
};

// The tensors that backward_input leaves for backward_weight: gradients of the block's output and
// of tensors that forward made.
struct BlockGradients {
  Tensor output, normed_2, middle, normed_1;  // [n, C]
  LayerStash attention;
};

// The stash of one micro-batch. Any number of them can be in flight. The gradients are needed from
// backward_input on. What depends on the kind of mlp is apart, because memory is only reused for the
// same kind.
struct BlockStash {
  Rows rows;
  Tensor input;  // [n, C]
  BlockActivations kept;
  MlpStash mlp;
  BlockGradients gradients;
  LayerStash mlp_gradients;
};

class Block {
 public:
  Block(Parameters& parameters, int layer, const GptConfig& config, const MaskOptions& masks,
        const LayerFactory& factory);

  // Memory for stash.input of these rows, `outer` of them this rank's outside of split layers.
  void prepare(BlockStash& stash, const Rows& rows, Count outer, DType dtype, Ledger& ledger) const;
  // Reads stash.input, which the caller has filled, and writes out[n, C].
  void forward(Backend& backend, Slice out, BlockStash& stash, Ledger& ledger) const;
  // Recomputes the attention's output only.
  void attend(Backend& backend, BlockStash& stash, Ledger& ledger) const;

  enum class Weights : std::uint8_t { later, now };
  // dx = the gradient of the input, given that of the output in stash.gradients.output. dx may lie
  // in another stash. With `now`, also adds to the gradients of the weights while it waits for other
  // ranks.
  void backward_input(Backend& backend, Slice dx, BlockStash& stash, Ledger& ledger,
                      Weights weights) const;
  // Adds to the gradients of the weights. Afterwards the stash may be reused.
  void backward_weight(Backend& backend, const BlockStash& stash) const;

  int first_parameter() const { return norm_1_.weight(); }
  int last_parameter() const { return mlp_->last_parameter(); }
  const Experts* divided_experts() const { return mlp_->divided_experts(); }
  Router* router() { return mlp_->router(); }

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
