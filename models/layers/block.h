// One transformer block, pre-LN: x + attention(norm(x)), then that + mlp(norm(that)).
#pragma once

#include <memory>
#include <string>

#include "models/gpt_config.h"
#include "models/layers/layer_factory.h"
#include "models/layers/masks.h"

namespace lockstep {

struct AttentionOutput {
  Tensor out, log_sum_exp;  // [N, c], [sequences, heads, length]
};

// What backward needs of a forward pass, beside the input. N rows of which n are this rank's
// outside of the split layers; widths c of this rank's heads, q of their queries, keys and values,
// h of the hidden layer.
struct BlockActivations {
  LayerNormStash norm_1, norm_2;
  Tensor normed_1;  // [n, C], or gathered
  Tensor qkv;       // [N, q]
  AttentionOutput attention;
  Tensor middle;             // [n, C] after the attention's residual
  Tensor normed_2;           // [n, C], or gathered
  Tensor hidden, activated;  // [N, h]
};

// What backward_input leaves for backward_weight: gradients of the block's output and of what
// forward made.
struct BlockGradients {
  Tensor output, hidden, normed_2;  // [n, C], [N, h], [n, C]
  Tensor middle, qkv, normed_1;     // [n, C], [N, q], [n, C]
  Tensor contracted, projected;     // [N, C] of the products, where not output and middle
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

  // Memory for stash.input of these rows.
  void prepare(BlockStash& stash, const Rows& rows, DType dtype, Ledger& ledger) const;
  // Reads stash.input, which the caller has filled, and writes out[n, C].
  void forward(Backend& backend, Slice out, BlockStash& stash, Ledger& ledger) const;
  // The attention's part of it alone: what it keeps, made again.
  void attend(Backend& backend, BlockStash& stash, Ledger& ledger) const;

  enum class Weights : std::uint8_t { later, now };
  // dx = the gradient of the input, given that of the output in stash.gradients.output. dx may be
  // the memory of another stash's. With `now` it adds to the gradients of the weights, too: beside
  // what it waits for.
  void backward_input(Backend& backend, Slice dx, BlockStash& stash, Ledger& ledger,
                      Weights weights) const;
  // Adds to the gradients of the weights. After it the stash may be used for another micro-batch.
  void backward_weight(Backend& backend, const BlockStash& stash) const;

  int first_parameter() const { return norm_1_.weight(); }
  int last_parameter() const { return contract_->last_parameter(); }

 private:
  void attention_weights(Backend& backend, const BlockStash& stash) const;
  void mlp_weights(Backend& backend, const BlockStash& stash) const;
  void norm_weights(Backend& backend, const BlockStash& stash) const;

  AttentionShape shape(const Rows& rows) const {
    return {rows.sequences, rows.length, heads_, head_size_, kv_heads_};
  }
  Dropout attention_mask(const Rows& rows) const { return masks_.attention(rows, layer_, heads_); }
  Dropout projection_mask(const Rows& rows) const {
    return masks_.hidden(rows, layer_, Dropped::projection);
  }
  Dropout mlp_mask(const Rows& rows) const { return masks_.hidden(rows, layer_, Dropped::mlp); }

  int layer_;
  LayerSplit split_;
  Masks masks_;
  Count width_, hidden_, heads_, kv_heads_, head_size_;
  LayerNorm norm_1_;
  std::unique_ptr<ColumnLinear> qkv_;
  std::unique_ptr<RowLinear> project_;
  LayerNorm norm_2_;
  std::unique_ptr<ColumnLinear> expand_;
  std::unique_ptr<RowLinear> contract_;
};

}  // namespace lockstep
