// Two linear layers with GELU between them. Every row goes through both.
#pragma once

#include <memory>

#include "models/layers/layer_factory.h"

namespace lockstep {

class DenseMlp final : public Mlp {
 public:
  // `hidden`: this rank's columns of the hidden layer.
  DenseMlp(std::unique_ptr<ColumnLinear> expand, std::unique_ptr<RowLinear> contract, Count hidden,
           const Masks& masks, int layer);

  Slice input(MlpStash& kept, const Rows& rows, Ledger& ledger) const override;
  void forward(Backend& backend, Slice out, Slice base, MlpStash& kept, const Rows& rows,
               Ledger& ledger) const override;
  void backward_input(Backend& backend, Slice dx, Slice dout, const MlpStash& kept,
                      LayerStash& gradients, const Rows& rows, Ledger& ledger,
                      const Meanwhile& meanwhile) const override;
  void backward_weight(Backend& backend, Slice dout, const MlpStash& kept,
                       const LayerStash& gradients, const Rows& rows) const override;
  int last_parameter() const override { return contract_->last_parameter(); }

 private:
  // h: `hidden` columns
  struct Activations {
    Tensor input;              // [n, C], or gathered
    Tensor hidden, activated;  // [N, h]
  };
  struct Gradients {
    Tensor hidden;      // [N, h]
    Tensor contracted;  // [N, C], gradient of the second product, unless it is dout
  };

  Dropout mask(const Rows& rows) const { return masks_.hidden(rows, layer_, Dropped::mlp); }

  std::unique_ptr<ColumnLinear> expand_;
  std::unique_ptr<RowLinear> contract_;
  Count hidden_;
  Masks masks_;
  int layer_;
};

}  // namespace lockstep
