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

// Creates the layers of another factory, but with this attention.
class ContextLayers final : public LayerFactory {
 public:
  ContextLayers(const LayerFactory& layers, ContextRanks& ranks) : layers_(layers), ranks_(ranks) {}

  const LayerSplit& split() const override { return layers_.split(); }
  std::unique_ptr<ColumnLinear> queries_keys_values(Parameters& parameters, const std::string& name,
                                                    const GptConfig& config) const override {
    return layers_.queries_keys_values(parameters, name, config);
  }
  std::unique_ptr<ColumnLinear> column(Parameters& parameters, const std::string& name, Count in,
                                       Count out) const override {
    return layers_.column(parameters, name, in, out);
  }
  std::unique_ptr<RowLinear> row(Parameters& parameters, const std::string& name, Count in,
                                 Count out) const override {
    return layers_.row(parameters, name, in, out);
  }
  std::unique_ptr<Embedding> embedding(Parameters& parameters,
                                       const GptConfig& config) const override {
    return layers_.embedding(parameters, config);
  }
  std::unique_ptr<Head> head(Parameters& parameters, const GptConfig& config,
                             const Embedding* tied) const override {
    return layers_.head(parameters, config, tied);
  }
  std::unique_ptr<Attention> attention(Parameters& parameters, int layer, const GptConfig& config,
                                       const MaskOptions& masks) const override {
    return std::make_unique<ContextAttention>(
        attention_parts(layers_, parameters, layer, config, masks), ranks_);
  }

 private:
  const LayerFactory& layers_;
  ContextRanks& ranks_;
};

}  // namespace lockstep
