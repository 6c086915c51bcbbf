// Causal self-attention: one product makes queries, keys and values, every head attends to its own
// and earlier positions, and a second product projects the heads' results to the width. Vaswani et
// al., "Attention is all you need", 2017.
//
// It attends to the keys of its own rows. An attention with keys on several ranks derives from it
// and overrides multiply(), attend() and attend_backward().
#pragma once

#include <memory>

#include "models/layers/layer_factory.h"

namespace lockstep {

class SelfAttention : public Attention {
 public:
  explicit SelfAttention(AttentionParts parts) : parts_(std::move(parts)) {}

  Slice input(AttentionActivations& kept, const Rows& rows, Ledger& ledger) const override;
  void forward(Backend& backend, Slice out, Slice base, AttentionActivations& kept,
               const Rows& rows, Ledger& ledger) const override;
  void attend(Backend& backend, AttentionActivations& kept, const Rows& rows,
              Ledger& ledger) const override;
  // During the call, dx doubles as scratch for the gradient of the attention's output.
  void backward_input(Backend& backend, Slice dx, Slice dout, const AttentionActivations& kept,
                      AttentionGradients& gradients, const Rows& rows, Ledger& ledger,
                      const Meanwhile& meanwhile) const override;
  void backward_weight(Backend& backend, Slice dout, const AttentionActivations& kept,
                       const AttentionGradients& gradients, const Rows& rows) const override;

 protected:
  // Computes kept.qkv from kept.input.
  virtual void multiply(Backend& backend, AttentionActivations& kept, DType dtype, const Rows& rows,
                        Ledger& ledger) const;
  // qkv[N, q] of this rank's own rows
  void multiply_into(Backend& backend, Slice qkv, const AttentionActivations& kept,
                     const Rows& rows) const;
  // dqkv[N, q], given dout[N, c], the gradient of kept.output.out
  virtual void attend_backward(Backend& backend, Slice dqkv, Slice dout,
                               const AttentionActivations& kept, const Rows& rows) const;

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
