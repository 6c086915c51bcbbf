// What a router decides: which experts compute which tokens, and with which weights. Plain arithmetic
// in f64 on the host for every device, because everything that follows depends on its numbers.
//
// A micro-batch has N tokens, each chooses K of E experts. Without a capacity no token is dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/expert_config.h"

namespace lockstep {

// Made once for each layer and micro-batch, and kept for backward: a layer that is computed again
// must not choose again, because equal scores could round otherwise.
struct Routing {
  std::vector<std::int32_t> experts;  // [N, K], by falling score
  std::vector<double> weights;        // [N, K]
  std::vector<Count> counts;          // [E], tokens of each expert, without dropped ones
  std::vector<Count> choices;         // [E], the same with dropped ones
  // [parts, E], choices in each part of the batch that has a balancing loss of its own, on all ranks
  // that share its sequences.
  std::vector<double> choices_of_parts;
  std::vector<std::int32_t> tokens;  // of the experts' rows: by expert, then by token
  std::vector<std::int32_t> rows;    // [N, K], the expert's row of each choice; -1 if dropped
  // Where ranks divide the experts: rows that each rank has sent to each of this rank's experts; and
  // those of all ranks that split these experts and have different rows, one after the other.
  std::vector<Count> arriving, arriving_of_parts;
  // Where rows first travel inside nodes: rows of each rank of the node that this rank passes on to
  // each node.
  std::vector<Count> passing;
  // Rows that travel to and from each rank, and to each of those that split this rank's experts.
  std::vector<Count> sent, received, received_of_parts;
  // If weights travel, of all rows that these have got: the experts of each, by their numbers on this
  // rank, and the weights; -1: none. As many for each row as the dispatcher says.
  std::vector<std::int32_t> arriving_experts;
  std::vector<double> arriving_weights;
  // The balancing loss, times its sequences: see Router::choose().
  double balance = 0;
  // [E], added up over its tokens, for a loss of the global batch.
  std::vector<double> probabilities;
  double z = 0;        // lse(scores)^2 of its tokens, added up
  double entropy = 0;  // of the probabilities of its tokens, nats, added up
  int layer = 0;       // of the router
};

// Of several micro-batches, by layer.
struct RoutingTotals {
  double balance = 0, z = 0, entropy = 0;
  Count dropped = 0, chosen = 0;
  std::map<int, std::vector<Count>> tokens, choices;  // without and with dropped ones, by expert
  std::map<int, std::vector<double>> probabilities;   // by expert

  void add(int layer, const Routing& routing);
  void add(const RoutingTotals& other);
};

class Router {
 public:
  // `layer` is its number in the whole model.
  explicit Router(const ExpertConfig& config, int layer = 0)
      : config_(config),
        layer_(layer),
        bias_(static_cast<std::size_t>(config.has_bias() ? config.number : 0)) {}

  // The ranks that share a micro-batch's sequences. They cut each of them into equally many tokens; with
  // `row_ranks`, so many of them cut the rows of all sequences instead, into equally many in order, and
  // this one is `row_rank` of these. add_up(numbers) adds numbers up over all sharers, which choose at
  // the same time; may be empty.
  struct Sharers {
    int ranks = 1;
    int row_ranks = 1, row_rank = 0;
    std::function<void(std::span<double>)> add_up;
  };
  void share_sequences(Sharers sharers) { sharers_ = std::move(sharers); }

  const ExpertConfig& config() const { return config_; }
  // bias[E] is added to each expert's probability when tokens choose, and is no part of the weights.
  // Empty without one.
  std::span<const double> bias() const { return bias_; }
  // Throws Error (bad_input) unless it has as many numbers as now.
  void set_bias(std::vector<double> bias);
  // Raises the bias of experts that were chosen less often than the mean, and lowers that of the
  // others: bias += rate * sign(mean - choices). choices[E] are those of all ranks in a step. Wang
  // et al., "Auxiliary-loss-free load balancing strategy for mixture-of-experts", 2024, algorithm 1.
  void balance(std::span<const double> choices);
  // For the balancing loss of the global batch, before the first backward(): choices[E] of all ranks
  // in a step. Returns the sum over the experts of f_e P_e, where this rank's tokens have
  // probabilities[E], added up, and P_e is a mean over all ranks' tokens. The results of all ranks
  // add up to the loss divided by E.
  double share_choices(std::span<const double> choices, std::span<const double> probabilities);

  // scores[N, E], the tokens of the sequences one after another. The highest scores are chosen, or
  // with a bias the highest sums of probability and bias; of equal ones the smaller index. The
  // balancing loss is added up over the sequences, or is that of the micro-batch times its
  // sequences; that of the global batch is not known yet.
  Routing choose(std::span<const double> scores, Count sequences) const;
  // For devices that compute no scores: the experts[tokens, K] of a layer's tokens, in place of all
  // experts in turn.
  using Assumed = std::function<std::vector<std::int32_t>(int layer, Count tokens)>;
  void assume(Assumed assumed) { assumed_ = std::move(assumed); }
  Routing choose_as_assumed(Count tokens, Count sequences) const;
  // dscores[N, E], given products[N, K] = <dout of the token, output of its expert>. The choice
  // itself has no gradient. `scale` is the factor of the losses of each sequence: the balancing loss
  // and the mean of its z-losses (Zoph et al., "ST-MoE", 2022), which have their own factors, too.
  void backward(std::span<double> dscores, std::span<const double> scores,
                std::span<const double> products, const Routing& routing, Count sequences,
                double scale) const;

 private:
  // This rank's tokens of a part of the batch that a balancing loss is about, the tokens of all ranks
  // that share them, and the number of their sequences.
  struct Part {
    std::size_t number;
    Count first, count;
    double tokens, sequences;
  };
  void count_parts(Routing& routing, Count sequences) const;
  // [E], added up over tokens.
  std::vector<double> probabilities(std::span<const double> scores) const;
  std::vector<Part> parts(Count tokens, Count sequences) const;
  // E sum_e f_e P_e, where f_e is the expert's share of the part's choices, and P_e this rank's part of
  // the mean of its probability. The results of all ranks that share the part add up: to 1 if balanced. Fedus et al., 2021, eq. 4; by sequence as in DeepSeek-V3, eq. 17-20;
  // of the global batch as in Qiu et al., "Demons in the detail", 2025.
  double balance_loss(std::span<const double> scores, const Routing& routing, Part part) const;
  void add_balance_gradient(std::span<double> dscores, std::span<const double> scores,
                            const Routing& routing, Part part, double scale) const;
  void add_z_gradient(std::span<double> dscores, std::span<const double> scores,
                      double scale) const;
  std::vector<double> shares(const Routing& routing, Part part) const;
  // The experts of one token, by falling score, those of the chosen groups first.
  void order(std::vector<std::int32_t>& experts, std::span<const double> scores,
             std::span<const double> affinities) const;
  void sort_rows(Routing& routing) const;
  // Which choices stay within the experts' capacity.
  std::vector<bool> kept(const Routing& routing) const;

  Count experts() const { return config_.number; }
  Count per_token() const { return config_.per_token; }

  ExpertConfig config_;
  int layer_;
  std::vector<double> bias_;
  std::vector<double> shares_;  // of the global batch
  Sharers sharers_;
  Assumed assumed_;
};

// The router of a layer, by the layer's number in the whole model.
struct LayerRouter {
  int layer;
  Router* router;
};
// Of layers, by their numbers in the whole model.
using RouterBiases = std::map<int, std::vector<double>>;
// Its tensor in files: "h.0.mlp.router.bias".
std::string router_bias_name(int layer);

}  // namespace lockstep
