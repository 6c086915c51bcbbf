// Causal self-attention: one product makes queries, keys and values, every head attends to its own
// and earlier positions, and a second product projects the heads' results to the width. Vaswani et
// al., "Attention is all you need", 2017.
//
// It attends to the keys of its own rows. An attention whose keys lie on several ranks derives from
// it and overrides attend() and attend_backward().
#pragma once

#include <memory>

#include "models/layers/layer_factory.h"

namespace lockstep {

// The heads that this rank computes.
struct AttentionHeads {
  Count queries, keys, size;  // heads of queries, heads of keys and values, elements of a head
};

class SelfAttention : public Attention {
 public:
  SelfAttention(std::unique_ptr<ColumnLinear> queries_keys_values,
                std::unique_ptr<RowLinear> projection, const AttentionHeads& heads,
                const Masks& masks, int layer);

  Slice input(AttentionActivations& kept, const Rows& rows, Ledger& ledger) const override;
  void forward(Backend& backend, Slice out, Slice base, AttentionActivations& kept,
               const Rows& rows, Ledger& ledger) const override;
  void attend(Backend& backend, AttentionActivations& kept, const Rows& rows,
              Ledger& ledger) const override;
  // Until its end, dx also holds the gradient of the attention's output.
  void backward_input(Backend& backend, Slice dx, Slice dout, const AttentionActivations& kept,
                      AttentionGradients& gradients, const Rows& rows, Ledger& ledger,
                      const Meanwhile& meanwhile) const override;
  void backward_weight(Backend& backend, Slice dout, const AttentionActivations& kept,
                       const AttentionGradients& gradients, const Rows& rows) const override;

 protected:
  // dqkv[N, q], given dout[N, c], the gradient of kept.output.out
  virtual void attend_backward(Backend& backend, Slice dqkv, Slice dout,
                               const AttentionActivations& kept, const Rows& rows) const;

  AttentionShape shape(const Rows& rows) const {
    return {rows.sequences, rows.length, heads_.queries, heads_.size, heads_.keys};
  }
  Dropout probability_mask(const Rows& rows) const {
    return masks_.attention(rows, layer_, heads_.queries);
  }

 private:
  Dropout projection_mask(const Rows& rows) const {
    return masks_.hidden(rows, layer_, Dropped::projection);
  }

  std::unique_ptr<ColumnLinear> queries_keys_values_;
  std::unique_ptr<RowLinear> projection_;
  AttentionHeads heads_;
  Masks masks_;
  int layer_;
};

}  // namespace lockstep
