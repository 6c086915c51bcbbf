// Balancing experts without a loss. A router's bias decides together with its scores which experts a
// token uses; after each step it goes up for experts that were used too little, and down for the
// others: see Router::balance(). Wang et al., "Auxiliary-loss-free load balancing strategy for
// mixture-of-experts", 2024.
//
// The choices of a step are added up over the ranks that share the routers: its replicas, and those
// that share its sequences. They are whole numbers, so all these ranks get the same bits.
#pragma once

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
  // biases to the ledger. All arguments must outlive it.
  RouterBalance(Communicator* sharers, Ledger& ledger, std::vector<LayerRouter> routers);
  ~RouterBalance();
  RouterBalance(const RouterBalance&) = delete;

  // Called once for each optimizer step, with what this rank's tokens have chosen in it. All sharers
  // call it together.
  void step(const RoutingTotals& own);
  double waiting_seconds() const { return waiting_ ? waiting_->seconds() : 0; }

 private:
  bool changes_biases() const;

  Communicator* sharers_;
  Ledger& ledger_;
  std::vector<LayerRouter> routers_;
  std::optional<Stopwatch> waiting_;
};

// What a rank with so many layers with experts sends for their balance, and the memory of their
// biases.
Terms router_balance_terms(const Plan& plan, int rank, Count layers);

// Gives the routers their biases. Those of other layers are ignored.
void set_biases(const std::vector<LayerRouter>& routers, const RouterBiases& biases);
// Returns the biases of all layers on rank 0, where each rank's routers are given; nothing elsewhere.
// Throws Error (wrong_result) if two ranks have different ones for a layer.
RouterBiases all_biases(Communicator& world, const std::vector<LayerRouter>& routers);

}  // namespace lockstep
