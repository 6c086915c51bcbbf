// What a router decides: which experts compute which tokens, and with which weights. Plain arithmetic
// in f64 on the host for every device, because everything that follows depends on its numbers.
//
// A micro-batch has N tokens, each chooses K of E experts. Without a capacity no token is dropped.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "models/expert_config.h"

namespace lockstep {

// Made once for each layer and micro-batch, and kept for backward: a layer that is computed again
// must not choose again, because equal scores could round otherwise.
struct Routing {
  std::vector<std::int32_t> experts;  // [N, K], by falling score
  std::vector<double> weights;        // [N, K]
  std::vector<Count> counts;          // [E], tokens of each expert, without dropped ones
  std::vector<std::int32_t> tokens;   // of the experts' rows: by expert, then by token
  std::vector<std::int32_t> rows;     // [N, K], the expert's row of each choice; -1 if dropped
  // Where ranks divide the experts: rows that each rank has sent to each of this rank's experts.
  std::vector<Count> arriving;
  double balance = 0;  // the balancing losses of its sequences, added up
  double z = 0;        // lse(scores)^2 of its tokens, added up
};

// Of several micro-batches, by layer.
struct RoutingTotals {
  double balance = 0, z = 0;
  Count dropped = 0, chosen = 0;
  std::map<int, std::vector<Count>> tokens;  // of each expert

  void add(int layer, const Routing& routing);
  void add(const RoutingTotals& other);
};

class Router {
 public:
  explicit Router(const ExpertConfig& config) : config_(config) {}

  const ExpertConfig& config() const { return config_; }
  // scores[N, E], the tokens of the sequences one after another. Of equal scores the smaller index
  // is chosen.
  Routing choose(std::span<const double> scores, Count sequences) const;
  // All experts in turn, for devices that compute no scores.
  Routing choose_in_turn(Count tokens) const;
  // dscores[N, E], given products[N, K] = <dout of the token, output of its expert>. The choice
  // itself has no gradient. `scale` is the factor of the losses of each sequence: the balancing loss
  // and the mean of its z-losses (Zoph et al., "ST-MoE", 2022), which have their own factors, too.
  void backward(std::span<double> dscores, std::span<const double> scores,
                std::span<const double> products, const Routing& routing, Count sequences,
                double scale) const;

 private:
  struct Sequence {
    Count first, count;
  };
  // E sum_e f_e P_e, where f_e is the expert's share of a sequence's choices, and P_e the mean of its
  // probability. 1 if balanced. Fedus et al., 2021, eq. 4; by sequence as in DeepSeek-V3, eq. 17-20.
  double balance_loss(std::span<const double> scores, const Routing& routing,
                      Sequence sequence) const;
  void add_balance_gradient(std::span<double> dscores, std::span<const double> scores,
                            const Routing& routing, Sequence sequence, double scale) const;
  void add_z_gradient(std::span<double> dscores, std::span<const double> scores,
                      double scale) const;
  std::vector<double> shares(const Routing& routing, Sequence sequence) const;
  // The experts of one token, by falling score, those of the chosen groups first.
  void order(std::vector<std::int32_t>& experts, std::span<const double> scores,
             std::span<const double> affinities) const;
  void sort_rows(Routing& routing) const;
  // Which choices stay within the experts' capacity.
  std::vector<bool> kept(const Routing& routing) const;

  Count experts() const { return config_.number; }
  Count per_token() const { return config_.per_token; }

  ExpertConfig config_;
};

}  // namespace lockstep
