// Experts: each is a small mlp, and a router sends each token to some of them. The rows of experts lie
// as experts.h says.
//
// n tokens of this rank, K experts for each, E experts in all.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "models/layers/dense_mlp.h"
#include "models/layers/experts.h"
#include "models/layers/layer_factory.h"

namespace lockstep {

class Mixture final : public Mlp {
 public:
  // Registers name + router.weight [C, E], the shared experts, if any, and the others.
  Mixture(const LayerFactory& factory, Parameters& parameters, const std::string& name,
          const GptConfig& config, const Masks& masks, int layer);

  Slice input(MlpStash& kept, const Rows& rows, Ledger& ledger) const override;
  void forward(Backend& backend, Slice out, Slice base, MlpStash& kept, const Rows& rows,
               Ledger& ledger) const override;
  void backward_input(Backend& backend, Slice dx, Slice dout, const MlpStash& kept,
                      LayerStash& gradients, const Rows& rows, Ledger& ledger,
                      const Meanwhile& meanwhile) const override;
  void backward_weight(Backend& backend, Slice dout, const MlpStash& kept,
                       const LayerStash& gradients, const Rows& rows) const override;
  int last_parameter() const override;
  const Experts* divided_experts() const override {
    return &experts_->parameters() == &parameters_ ? nullptr : experts_.get();
  }
  Router* router() override { return &router_; }

 private:
  struct Activations {
    Tensor input;   // [n, C], unless the shared experts keep it
    Tensor scores;  // [n, E], of statistics_type()
    MlpStash shared;
    LayerStash experts;
  };
  struct Gradients {
    Tensor undropped;         // [n, C], with dropout
    Tensor products, scores;  // [n, K] of statistics_type(), [n, E]
    LayerStash shared, experts;
  };

  // [n, C]
  Slice own_input(const Activations& kept) const {
    return shared_ ? shared_->own_input(kept.shared) : kept.input.slice();
  }
  Matrix router(Slice of) const { return {of, width_, router_.config().number}; }
  // The gradient of what dropout has taken: dout itself without dropout.
  Slice undropped(Slice dout, const Gradients& gradients) const {
    return gradients.undropped.count() > 0 ? gradients.undropped.slice() : dout;
  }
  Dropout mask(const Rows& rows) const { return masks_.hidden(rows, layer_, Dropped::mlp); }
  Count own_tokens(const Rows& rows) const { return split_.outer_rows(rows.count()); }

  Parameters& parameters_;
  LayerSplit split_;
  Count width_;
  Router router_;
  int router_weight_;
  std::optional<DenseMlp> shared_;
  std::unique_ptr<Experts> experts_;
  Masks masks_;
  int layer_;
};

}  // namespace lockstep
