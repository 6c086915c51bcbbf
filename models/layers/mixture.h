// Experts: each is a small mlp, and a router sends each token to some of them. The rows of experts lie
// as experts.h says.
//
// N tokens, K experts for each, E experts in all, f: hidden columns of an expert.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "models/layers/experts.h"
#include "models/layers/layer_factory.h"

namespace lockstep {

class Mixture final : public Mlp {
 public:
  // Registers name + router.weight [C, E], the shared experts, if any, and then calls make(name) for
  // the others.
  using MakeExperts = std::function<std::unique_ptr<Experts>(const std::string& name)>;
  Mixture(Parameters& parameters, const std::string& name, const GptConfig& config,
          const Masks& masks, int layer, const MakeExperts& make);

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
    Tensor input;                            // [N, C]
    Tensor scores;                           // [N, E], of statistics_type()
    Tensor made;                             // [N K, C], the experts' outputs
    Tensor shared_hidden, shared_activated;  // [N, S f]
    LayerStash experts;
  };
  struct Gradients {
    Tensor undropped;         // [N, C], with dropout
    Tensor made, gathered;    // [N K, C]
    Tensor shared_hidden;     // [N, S f]
    Tensor products, scores;  // [N, K] of statistics_type(), [N, E]
    LayerStash experts;
  };

  Matrix router(Slice of) const { return {of, width_, router_.config().number}; }
  // The gradient of what dropout has taken: dout itself without dropout.
  Slice undropped(Slice dout, const Gradients& gradients) const {
    return gradients.undropped.count() > 0 ? gradients.undropped.slice() : dout;
  }
  Dropout mask(const Rows& rows) const { return masks_.hidden(rows, layer_, Dropped::mlp); }
  // Rows of all experts, at most.
  Count chosen(const Rows& rows) const { return router_.config().most_rows(rows.count()); }

  Parameters& parameters_;
  Count width_;
  Router router_;
  int router_weight_;
  std::optional<Expert> shared_;
  std::unique_ptr<Experts> experts_;
  Masks masks_;
  int layer_;
};

}  // namespace lockstep
