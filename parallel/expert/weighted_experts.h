// Experts that ranks divide, and that multiply what they make by the router's weights. So the weights
// travel with the rows, and a rank may get a token once for several of its experts: it adds up what these
// have made.
//
//   forward    send the rows of tokens; compute them; multiply, and add up those of a token; send back
//   backward   send the gradients of the sums; run backward; add up the gradients of a token's inputs; send
//              these back, and those of the weights
//
// Nothing of what experts have made is kept: the gradient of a weight is <g, h> + <dout, b>, where h goes
// into the expert's second product, whose gradient without the weight is g, and b is its bias. Megatron-LM
// multiplies on the experts' ranks, too, but before the second product.
#pragma once

#include "models/layers/mixture.h"
#include "parallel/expert/ranks.h"

namespace lockstep {

class WeightedExperts final : public Experts {
 public:
  // Registers this rank's experts.
  WeightedExperts(Parameters& parameters, const std::string& name, const GptConfig& config,
                  const ExpertPart& part, ExpertRanks& ranks)
      : Experts(parameters, name, config, part), ranks_(ranks) {}

  void mix(Backend& backend, Slice out, Slice base, Slice x, LayerStash& kept, Routing& routing,
           const Rows& rows, Ledger& ledger, const Meanwhile& meanwhile) const override;
  void mix_backward_input(Backend& backend, Slice dx, Slice base, Slice products, Slice dout,
                          const LayerStash& kept, LayerStash& gradients, const Routing& routing,
                          Ledger& ledger, const Meanwhile& meanwhile) const override;
  void mix_backward_weight(Backend& backend, const LayerStash& kept, const LayerStash& gradients,
                           const Routing& routing) const override;

 private:
  struct Kept {
    Activations rows;
    Tensor biases;  // [experts, C], those that follow the sums
  };
  struct GradientsOfRows {
    Gradients hidden;
    Tensor made;  // [rows, C]
  };
  using Use = ExpertRanks::Use;
  // The rows that have arrived here, by rank, and those of the experts.
  struct Routes;
  Routes routes_of(const Routing& routing) const;
  using Labels = ExpertRanks::Labels;
  // `leaving` become the experts' rows, in `here`. Returns those that have arrived at this rank.
  Slice dispatch(Backend& backend, Labels labels, Slice here, Slice leaving, const Routing& routing,
                 const Routes& routes) const;
  // The sums of each arrived row's experts, times `weights` if there are any; they are complete in this
  // rank's rows.
  Slice add_up(Backend& backend, const char* label, Slice here, const Routes& routes,
               std::span<const double> weights) const;
  // products[n, K] of what the experts have made, given the parts without biases and the gradients of
  // the rows that have arrived here.
  void return_products(Backend& backend, Slice products, Slice of_rows, Slice of_biases,
                       const SentRows& sent, const Routing& routing, const Routes& routes) const;
  Slice rows(Use use, Count most, Count count) const {
    return ranks_.scratch(use, most, width(), parameters().dtype()).first(count * width());
  }
  // Numbers for each expert of some rows.
  Slice numbers(Use use, Count most, Count count) const {
    return ranks_.scratch(use, most, 1, statistics_type(parameters().dtype())).first(count);
  }
  Count most_rows_here() const { return config().most_rows(ranks_.split()); }
  Count most_sent(const Routing& routing) const {
    return ranks_.most_sent(std::ssize(routing.experts) / config().per_token);
  }

  ExpertRanks& ranks_;
};

}  // namespace lockstep
