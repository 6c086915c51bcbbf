// Causal self-attention: one product makes queries, keys and values, every head attends to its own
// and earlier positions, and a second product projects the heads' results to the width. Vaswani et
// al., "Attention is all you need", 2017.
//
// It attends to the keys of its own rows. An attention with keys on several ranks derives from it
// and overrides multiply(), attend_forward() and attend_backward().
#pragma once

#include <memory>

#include "models/layers/layer_factory.h"

namespace lockstep {

class SelfAttention : public Attention {
 public:
  explicit SelfAttention(AttentionParts parts) : parts_(std::move(parts)) {}

  Slice input(AttentionStash& kept, const Rows& rows, Ledger& ledger) const override;
  void forward(Backend& backend, Slice out, Slice base, AttentionStash& kept, const Rows& rows,
               Ledger& ledger) const override;
  void attend(Backend& backend, AttentionStash& kept, const Rows& rows,
              Ledger& ledger) const override;
  // During the call, dx doubles as scratch for the gradient of the attention's output.
  void backward_input(Backend& backend, Slice dx, Slice dout, const AttentionStash& kept,
                      LayerStash& gradients, const Rows& rows, Ledger& ledger,
                      const Meanwhile& meanwhile) const override;
  void backward_weight(Backend& backend, Slice dout, const AttentionStash& kept,
                       const LayerStash& gradients, const Rows& rows) const override;
  bool passes_gradient() const override { return parts_.queries_keys_values->passes_gradient(); }

 protected:
  // q: columns of this rank's queries, keys and values; c: of its heads. The virtual functions may
  // exchange rows and heads with other ranks: those of `qkv` and `log_sum_exp` are theirs alone.
  struct Operands {
    Tensor input;  // [n, C], or gathered
    Tensor qkv;    // [N, q]
  };
  struct Output {
    Tensor out, log_sum_exp;  // [N, c], [sequences, heads, length]
  };
  struct Gradients {
    Tensor qkv;        // [N, q]
    Tensor projected;  // [N, C], gradient of the projection's product, unless it is dout
  };

  // Computes operands.qkv from operands.input.
  virtual void multiply(Backend& backend, Operands& operands, DType dtype, const Rows& rows,
                        Ledger& ledger) const;
  // qkv[N, q] of this rank's own rows
  void multiply_into(Backend& backend, Slice qkv, const Operands& operands, const Rows& rows) const;
  virtual void attend_forward(Backend& backend, Output& output, const Operands& operands,
                              const Rows& rows, Ledger& ledger) const;
  // dqkv[N, q], given dout[N, c], the gradient of output.out
  virtual void attend_backward(Backend& backend, Slice dqkv, Slice dout, const Operands& operands,
                               const Output& output, const Rows& rows) const;

  AttentionShape shape(const Rows& rows) const {
    return {rows.sequences,   rows.length,     parts_.heads,
            parts_.head_size, parts_.kv_heads, rows.documents};
  }
  Dropout probability_mask(const Rows& rows) const {
    return parts_.masks.attention(rows, parts_.layer, parts_.heads);
  }

 private:
  Dropout projection_mask(const Rows& rows) const {
    return parts_.masks.hidden(rows, parts_.layer, Dropped::projection);
  }

  AttentionParts parts_;
};

}  // namespace lockstep
