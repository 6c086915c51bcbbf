// Experts that ranks divide: a rank has some of them, for the rows of all ranks.
//
//   forward    dispatch the rows; run this rank's experts on the rows they got; combine
//   backward   dispatch the gradients of the experts' outputs; run backward; combine the gradients
//              of their inputs
//
// An expert has its rows in the order of the ranks, then of their tokens: the order in which one rank
// would have them all. So its gradients do not depend on the number of ranks, bit for bit.
#pragma once

#include "models/layers/mixture.h"
#include "parallel/expert/ranks.h"

namespace lockstep {

class DividedExperts final : public Experts {
 public:
  // Registers this rank's experts.
  DividedExperts(Parameters& parameters, const std::string& name, const GptConfig& config,
                 ExpertRanks& ranks);

  Slice input(LayerStash& kept, const Rows& tokens, Ledger& ledger) const override;
  void forward(Backend& backend, Slice made, LayerStash& kept, Routing& routing, const Rows& tokens,
               Ledger& ledger) const override;
  void backward_input(Backend& backend, Slice dinput, Slice dmade, const LayerStash& kept,
                      LayerStash& gradients, const Routing& routing, const Rows& tokens,
                      Ledger& ledger) const override;
  void backward_weight(Backend& backend, Slice dmade, const LayerStash& kept,
                       const LayerStash& gradients, const Routing& routing) const override;

 private:
  struct GradientsOfRows {
    Gradients hidden;
    Tensor made;  // [rows, C], of what this rank's experts have made
  };
  // The rows of one dispatch, counted and in both orders.
  struct Routes;
  Routes routes_of(const Routing& routing) const;
  // Rows of this rank's tokens travel to the ranks that have their experts, into [rows, C] by expert;
  // and the other way around.
  void dispatch(Backend& backend, const char* label, Slice here, Slice leaving,
                const Routes& routes) const;
  void combine(Backend& backend, const char* label, Slice returning, Slice here,
               const Routes& routes) const;
  Slice scratch(ExpertRanks::Use use, Count rows) const {
    return ranks_.scratch(use, rows, width(), parameters().dtype());
  }
  Slice first_rows(Slice all, Count rows) const { return all.first(rows * width()); }
  // Of this rank's experts, at most.
  Count most_rows() const { return config().most_rows(ranks_.split()); }

  ExpertRanks& ranks_;
};

// The layers of another factory, but with experts that ranks divide. They have parameters apart.
class ExpertLayers final : public WrappedLayers {
 public:
  ExpertLayers(const LayerFactory& layers, Parameters& experts, ExpertRanks& ranks);

  const LayerSplit& split() const override { return split_; }
  std::unique_ptr<Mlp> mlp(Parameters& parameters, int layer, const GptConfig& config,
                           const MaskOptions& masks) const override;

 private:
  Parameters& experts_;
  ExpertRanks& ranks_;
  LayerSplit split_;
};

}  // namespace lockstep
