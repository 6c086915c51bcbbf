// One transformer block, pre-LN: x + attention(norm(x)), then that + mlp(norm(that)).
#pragma once

#include <functional>
#include <string>

#include "models/gpt_config.h"
#include "models/layers/layer_norm.h"
#include "models/layers/linear.h"

namespace lockstep {

// Rows of one micro-batch.
struct Rows {
  Count sequences = 0, length = 0;
  Count count() const { return sequences * length; }
};

// What backward_input leaves for backward_weight: gradients of the block's output and of what is in
// the stash.
struct BlockGradients {
  Tensor output, hidden, normed_2;  // [N, C], [N, 4C], [N, C]
  Tensor middle, qkv, normed_1;     // [N, C], [N, 3C], [N, C]
};

// What the backward of one micro-batch needs. Any number of micro-batches can be in flight, each
// with its own; the gradients are needed from backward_input on.
struct BlockStash {
  Rows rows;
  Tensor input;  // [N, C]
  LayerNormStash norm_1, norm_2;
  Tensor normed_1, qkv, attended;      // [N, C], [N, 3C], [N, C]
  Tensor log_sum_exp;                  // [sequences, heads, length]
  Tensor middle;                       // [N, C] after the attention's residual
  Tensor normed_2, hidden, activated;  // [N, C], [N, 4C], [N, 4C]
  BlockGradients gradients;
};

class Block {
 public:
  Block(Parameters& parameters, const std::string& name, const GptConfig& config);

  // Reads stash.input, which the caller has filled, and writes out[N, C].
  void forward(Backend& backend, Slice out, BlockStash& stash, Ledger& ledger) const;
  // dx = the gradient of the input, given that of the output in stash.gradients.output. dx
  // may be the memory of another stash's.
  void backward_input(Backend& backend, Slice dx, BlockStash& stash, Ledger& ledger) const;
  // Adds to the gradients of the weights. After it the stash may be used for another micro-batch.
  void backward_weight(Backend& backend, const BlockStash& stash) const;
  // Memory for stash.input of these rows.
  void prepare(BlockStash& stash, Rows rows, DType dtype, Ledger& ledger) const;

  int first_parameter() const { return norm_1_.weight(); }
  int last_parameter() const { return contract_.bias(); }

 private:
  AttentionShape shape(const Rows& rows) const {
    return {rows.sequences, rows.length, heads_, width_ / heads_};
  }

  Count width_, heads_;
  LayerNorm norm_1_;
  Linear qkv_, project_;
  LayerNorm norm_2_;
  Linear expand_, contract_;
};

}  // namespace lockstep
