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

// What the backward of one micro-batch needs. Any number of micro-batches can be in flight, each
// with its own. The gradients that backward_input leaves here are what backward_weight takes, at
// once or later.
struct BlockStash {
  Rows rows;
  Tensor input;  // [N, C]
  LayerNormStash norm_1, norm_2;
  Tensor normed_1, qkv, attended;      // [N, C], [N, 3C], [N, C]
  Tensor log_sum_exp;                  // [sequences, heads, length]
  Tensor middle;                       // [N, C] after the attention's residual
  Tensor normed_2, hidden, activated;  // [N, C], [N, 4C], [N, 4C]
  Tensor dout, dhidden, dnormed_2;     // gradients of the block's output, of hidden, of normed_2
  Tensor dmiddle, dqkv, dnormed_1;
};

class Block {
 public:
  Block(Parameters& parameters, const std::string& name, const GptConfig& config);

  // Reads stash.input, which the caller has filled, and writes out[N, C].
  void forward(Backend& backend, Slice out, BlockStash& stash, Ledger& ledger) const;
  // dx = the gradient of the input, given dout in stash.dout. dx may be the memory of another
  // stash's dout.
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
