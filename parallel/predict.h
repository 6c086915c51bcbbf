// Predicts from the plan alone what a rank will send, receive and hold: the sum of the closed forms
// of its parts. A run reports it as theory, next to its measurements.
#pragma once

#include "collectives/base/device.h"
#include "models/narrow_backend.h"
#include "parallel/plan.h"
#include "parallel/prediction.h"

namespace lockstep {

// Facts that a plan does not determine before ranks are connected.
struct Environment {
  std::vector<std::string> algorithms = {};  // chosen by `auto`, by bucket
  int ranks_per_node = 1;                    // of the replicas of a rank's part of the model
  bool computes_on_host = true;
  bool multiplies_bf16 = true;  // without widened copies
};

// Whether the rank with that ledger needs no workspace for a device's kernels.
inline bool computes_on_host(const Ledger& ledger) {
  return !ledger.device() || !ledger.device()->enqueues();
}

// Whether the rank with that ledger has data: a dry run only counts.
inline bool has_data(const Ledger& ledger) { return !ledger.device() || ledger.device()->stores(); }

// Whether the rank with that ledger multiplies bf16 without widened copies: see DryBackend.
inline bool multiplies_bf16(const Ledger& ledger) {
  return !has_data(ledger) || host_multiplies_bf16();
}

// Throws Error (bad_input) for a rank that is not in the plan, and for parameter servers, which have
// their own closed forms.
Prediction predict(const Plan& plan, int rank, const Environment& environment = {});

}  // namespace lockstep
