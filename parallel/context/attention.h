// Self-attention over sequences whose tokens lie on several ranks. Everything else in the model works
// on a rank's own tokens.
#pragma once

#include "models/layers/self_attention.h"
#include "parallel/context/ranks.h"

namespace lockstep {

class ContextAttention final : public SelfAttention {
 public:
  ContextAttention(AttentionParts parts, ContextRanks& ranks);

 private:
  // operands.qkv and output.log_sum_exp have the group's rows and this rank's share of the heads.
  void multiply(Backend& backend, Operands& operands, DType dtype, const Rows& rows,
                Ledger& ledger) const override;
  void attend_forward(Backend& backend, Output& output, const Operands& operands, const Rows& rows,
                      Ledger& ledger) const override;
  void attend_backward(Backend& backend, Slice dqkv, Slice own_dout, const Operands& operands,
                       const Output& output, const Rows& rows) const override;

  // The sizes of one call, of the group's rows and this rank's share of the heads.
  struct Sizes;
  Sizes sizes(const Rows& rows) const;
  // A tensor with this rank's rows of all heads, or with the group's rows of this rank's heads.
  struct HeadRows;
  HeadRows own_heads(Slice own, const Rows& rows, bool with_kv) const;
  HeadRows group_heads(Slice group, const Rows& rows, bool with_kv) const;
  // Exchanges between the two.
  void scatter_heads(Backend& backend, Slice group, Slice own, const Rows& rows,
                     bool with_kv) const;
  void gather_heads(Backend& backend, Slice own, Slice group, const Rows& rows, bool with_kv) const;
  // For products[sequences, heads, length].
  void scatter_products(Backend& backend, Slice group, Slice own, const Rows& rows) const;

  ContextRanks& ranks_;
};

// The layers of another factory, but with this attention.
class ContextLayers final : public WrappedLayers {
 public:
  ContextLayers(const LayerFactory& layers, ContextRanks& ranks)
      : WrappedLayers(layers), ranks_(ranks) {}

  std::unique_ptr<Attention> attention(Parameters& parameters, int layer, const GptConfig& config,
                                       const MaskOptions& masks) const override {
    return std::make_unique<ContextAttention>(
        attention_parts(inner(), parameters, layer, config, masks), ranks_);
  }

 private:
  ContextRanks& ranks_;
};

}  // namespace lockstep
