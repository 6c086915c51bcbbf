// Experts that ranks divide: a rank has some of them, or some hidden columns of each, for the rows of all
// ranks.
//
//   forward    dispatch the rows; run this rank's experts on the rows they got; combine
//   backward   dispatch the gradients of the experts' outputs; run backward; combine the gradients
//              of their inputs
//
// An expert has its rows in the order of the ranks, then of their tokens: the order in which one rank
// would have them all. So its gradients do not depend on the number of ranks, bit for bit.
//
// Ranks that split an expert's columns gather its rows at the end of a dispatch, if they have different
// ones, and add up what each has made of them at the beginning of a combine.
#pragma once

#include "models/layers/mixture.h"
#include "parallel/expert/ranks.h"

namespace lockstep {

class DividedExperts final : public Experts {
 public:
  // Registers this rank's experts.
  DividedExperts(Parameters& parameters, const std::string& name, const GptConfig& config,
                 ExpertRanks& ranks);

  Slice input(LayerStash& kept, const Routing& routing, Ledger& ledger) const override;
  void forward(Backend& backend, Slice made, LayerStash& kept, Routing& routing, const Rows& tokens,
               Ledger& ledger) const override;
  void backward_input(Backend& backend, Slice dinput, Slice dmade, const LayerStash& kept,
                      LayerStash& gradients, const Routing& routing, Ledger& ledger) const override;
  void backward_weight(Backend& backend, Slice dmade, const LayerStash& kept,
                       const LayerStash& gradients, const Routing& routing) const override;

 protected:
  Meanwhile begin_meanwhile(const Meanwhile& meanwhile) const override {
    return ranks_.run_during_dispatch(meanwhile);
  }

 private:
  struct GradientsOfRows {
    Gradients hidden;
    Tensor made;  // [rows, C], of what this rank's experts have made
  };
  // The rows of one dispatch, counted and in both orders.
  struct Routes;
  Routes routes_of(const Routing& routing) const;
  using Labels = ExpertRanks::Labels;
  // Rows of this rank's tokens travel to the ranks that have their experts, into [rows, C] by expert;
  // and the other way around, when complete() has been called with the sums [rows, C] by rank.
  void dispatch(Backend& backend, Labels labels, Slice here, Slice leaving, const Routing& routing,
                const Routes& routes) const;
  template <typename Complete>
  void combine(Backend& backend, Labels labels, Slice returning, Slice here, const Routing& routing,
               const Routes& routes, Complete complete) const;
  // Of rows by rank, those that this rank has got.
  Slice own_part(Slice by_rank, const Routes& routes) const;
  Slice scratch(ExpertRanks::Use use, Count rows) const {
    return ranks_.scratch(use, rows, width(), parameters().dtype());
  }
  Slice first_rows(Slice all, Count rows) const { return all.first(rows * width()); }
  // Of this rank's experts, at most.
  Count most_rows_here() const { return config().most_rows(ranks_.split()); }

  ExpertRanks& ranks_;
};

// Those of the rank, which multiply by the router's weights where the split says.
std::unique_ptr<Experts> make_divided_experts(Parameters& parameters, const std::string& name,
                                              const GptConfig& config, ExpertRanks& ranks);

// The layers of another factory, but with experts that ranks divide. Their parameters are `experts`.
class ExpertLayers final : public WrappedLayers {
 public:
  ExpertLayers(const LayerFactory& layers, Parameters& experts, ExpertRanks& ranks)
      : WrappedLayers(layers), experts_(experts), ranks_(ranks) {}

  std::unique_ptr<Experts> experts(Parameters&, const std::string& name,
                                   const GptConfig& config) const override {
    return make_divided_experts(experts_, name, config, ranks_);
  }
  std::unique_ptr<Mlp> mlp(Parameters& parameters, int layer, const GptConfig& config,
                           const MaskOptions& masks) const override {
    return config.experts.in_layer(layer) ? LayerFactory::mlp(parameters, layer, config, masks)
                                          : inner().mlp(parameters, layer, config, masks);
  }

 private:
  Parameters& experts_;
  ExpertRanks& ranks_;
};

}  // namespace lockstep
