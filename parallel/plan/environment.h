// What a prediction needs to know of the machine that a plan runs on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/base/ledger.h"
#include "models/ops/narrow_backend.h"
#include "models/parameters.h"

namespace lockstep {

// Of the ranks that have the same parameters.
struct ReplicaFacts {
  // Chosen by `auto`: by bucket, or as sharded/algorithms.h lists them. Empty: not chosen.
  std::vector<std::string> algorithms = {};
  int ranks_per_node = 1;         // of the ranks that reduce gradients
  int counterparts_per_node = 1;  // of the ranks with the same shards
  // Optimizer steps taken, and those before this run.
  struct Steps {
    std::int64_t before = 0, taken = 0;
  };
  std::optional<Steps> steps = {};
};

// Rows of one layer and micro-batch that a rank sends to the experts of each rank, and gets from it;
// and the rows that the ranks have got which split its experts: of each, or one number if they have
// the same rows.
struct DispatchedRows {
  std::vector<Count> sent, received;  // by rank
  std::vector<Count> of_parts = {};
  std::vector<Count> passing = {};  // as in Routing
};

// Facts that a plan does not determine before ranks are connected.
struct Environment {
  BySet<ReplicaFacts> replicas = {};
  // What routers have chosen in the step that was counted. Empty: what the plan assumes.
  std::vector<DispatchedRows> dispatched = {};
  int expert_ranks_per_node = 1;  // of the ranks that divide experts
  bool computes_on_host = true;
  bool multiplies_bf16 = true;  // without widened copies
};

// Whether the rank with that ledger needs no workspace for a device's kernels.
inline bool computes_on_host(const Ledger& ledger) {
  return !ledger.device() || !ledger.device()->enqueues();
}

// Whether the rank with that ledger has data: a dry run only counts.
inline bool has_data(const Ledger& ledger) { return !ledger.device() || ledger.device()->stores(); }

// Whether the rank with that ledger multiplies bf16 without widened copies: see DryBackend of parallel/predict/workspace.h.
inline bool multiplies_bf16(const Ledger& ledger) {
  return !has_data(ledger) || host_multiplies_bf16();
}

}  // namespace lockstep
