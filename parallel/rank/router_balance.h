// What routers with copies on several ranks need to balance experts: the choices of a step, added up
// over the ranks that share the routers, which are its replicas and those that share its sequences.
// They are whole numbers, so all these ranks get the same bits.
//
// Without a loss: a router's bias decides together with its scores which experts a
// token uses; after each step it goes up for experts that were used too little, and down for the
// others: see Router::balance(). Wang et al., "Auxiliary-loss-free load balancing strategy for
// mixture-of-experts", 2024.
//
// By a loss of the global batch: its gradient needs the choices of the whole batch. Qiu et al., "Demons
// in the detail: on implementing load balancing loss for training specialized mixture-of-expert
// models", 2025.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collectives/stopwatch.h"
#include "models/routing.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/terms.h"

namespace lockstep {

class RouterBalance {
 public:
  static constexpr const char* label = "choices of experts";

  // `sharers` are the ranks with copies of these routers; null: there are no others. Charges the
  // biases to the ledger. The other arguments must outlive it.
  RouterBalance(std::unique_ptr<Communicator> sharers, Ledger& ledger, const Plan& plan,
                std::vector<LayerRouter> routers);
  ~RouterBalance();
  RouterBalance(const RouterBalance&) = delete;

  // All sharers call these together and in this order, with what this rank's tokens have chosen in a
  // step. begin_step() forgets the step before.
  void begin_step() { choices_.clear(); }
  // Before each backward pass, when all forward passes of the step are done: the first call gives the
  // routers what a balancing loss of the global batch needs.
  void before_backward(const RoutingTotals& own);
  // With the optimizer's step: changes the biases.
  void step(const RoutingTotals& own);
  // This rank's part of the balancing loss of the global batch in the last step, as in RoutingTotals.
  double loss() const { return loss_; }
  double waiting_seconds() const { return waiting_ ? waiting_->seconds() : 0; }

 private:
  // Adds up the choices of all sharers, layer by layer.
  void add_up(const RoutingTotals& own);
  // Calls run(layer, its part of the choices) for each layer.
  template <typename Run>
  void for_each_layer(Run run);

  std::unique_ptr<Communicator> sharers_;
  Ledger& ledger_;
  const Plan& plan_;
  std::vector<LayerRouter> routers_;
  std::vector<double> choices_;  // of the step; empty: not added up yet
  double loss_ = 0;
  std::optional<Stopwatch> waiting_;
};

// What a rank with so many layers with experts sends for their balance, and the memory of their
// biases.
Terms router_balance_terms(const Plan& plan, int rank, Count layers);

// Gives the routers their biases. Those of other layers are ignored.
void set_biases(const std::vector<LayerRouter>& routers, const RouterBiases& biases);
// Returns the biases of all layers on rank 0, and nothing elsewhere or if the experts have none. All
// ranks call it with their routers.
// Throws Error (wrong_result) if two ranks have different ones for a layer.
RouterBiases all_biases(Communicator& world, const ExpertConfig& experts,
                        const std::vector<LayerRouter>& routers);

}  // namespace lockstep
