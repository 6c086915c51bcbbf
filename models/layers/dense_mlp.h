// Two linear layers with GELU between them. Every row goes through both.
#pragma once

#include <memory>

#include "models/layers/layer_factory.h"

namespace lockstep {

class DenseMlp final : public Mlp {
 public:
  // Registers name + c_fc.* and c_proj.*, with `hidden` columns between them on all ranks.
  DenseMlp(const LayerFactory& factory, Parameters& parameters, const std::string& name,
           Count width, Count hidden, const Masks& masks, int layer);

  Slice input(MlpStash& kept, const Rows& rows, Ledger& ledger) const override;
  // The same memory afterwards.
  Slice own_input(const MlpStash& kept) const {
    return expand_->own_input(kept.tensors.own<Activations>().input);
  }
  void forward(Backend& backend, Slice out, Slice base, MlpStash& kept, const Rows& rows,
               Ledger& ledger) const override;
  void backward_input(Backend& backend, Slice dx, Slice dout, const MlpStash& kept,
                      LayerStash& gradients, const Rows& rows, Ledger& ledger,
                      const Meanwhile& meanwhile) const override;
  void backward_weight(Backend& backend, Slice dout, const MlpStash& kept,
                       const LayerStash& gradients, const Rows& rows) const override;
  int last_parameter() const override { return contract_->last_parameter(); }
  bool passes_gradient() const override { return expand_->passes_gradient(); }

 private:
  // h: this rank's hidden columns
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
