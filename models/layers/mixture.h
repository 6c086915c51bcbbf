// Experts: each is a small mlp, and a router sends each token to some of them. Rows lie by expert, then
// in the order of the tokens, so that an expert sums its gradients in the same order wherever it is.
//
// N tokens, K experts for each, E experts in all, f: hidden columns of an expert.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/layers/layer_factory.h"
#include "models/layers/linear.h"

namespace lockstep {

class Mixture final : public Mlp {
 public:
  // Registers name + router.weight [C, E], the shared experts, if any, and the experts in order.
  Mixture(Parameters& parameters, const std::string& name, const GptConfig& config,
          const Masks& masks, int layer);

  Slice input(MlpStash& kept, const Rows& rows, Ledger& ledger) const override;
  void forward(Backend& backend, Slice out, Slice base, MlpStash& kept, const Rows& rows,
               Ledger& ledger) const override;
  void backward_input(Backend& backend, Slice dx, Slice dout, const MlpStash& kept,
                      LayerStash& gradients, const Rows& rows, Ledger& ledger,
                      const Meanwhile& meanwhile) const override;
  void backward_weight(Backend& backend, Slice dout, const MlpStash& kept,
                       const LayerStash& gradients, const Rows& rows) const override;
  int last_parameter() const override;

 private:
  // An mlp of rows that are there already.
  struct Expert {
    Linear expand, contract;
    // Tells the backend that all gradients are complete without a row of x.
    void add_no_rows(Backend& backend, Slice x) const;
  };
  struct Hidden {
    Tensor hidden, activated;
  };
  struct Activations {
    Tensor input;            // [N, C]
    Tensor scores;           // [N, E], of statistics_type()
    Tensor gathered;         // [N K, C], the experts' inputs
    Hidden experts, shared;  // [N K, f], [N, S f]
    Tensor made;             // [N K, C], the experts' outputs
  };
  struct Gradients {
    Tensor undropped;              // [N, C], with dropout
    Tensor made, gathered;         // [N K, C]
    Tensor hidden, shared_hidden;  // [N K, f], [N, S f]
    Tensor products, scores;       // [N, K] of statistics_type(), [N, E]
  };

  // Calls run(expert, the place of its rows) for each expert.
  template <typename Run>
  void for_each_expert(const Routing& routing, Run run) const;
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
  std::vector<Expert> experts_;
  std::optional<Expert> shared_;
  Masks masks_;
  int layer_;
};

}  // namespace lockstep
