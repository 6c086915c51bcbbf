// What a rank of a plan will send, receive and hold, from the plan alone: the sum of the closed
// forms of its parts. A run reports it as theory, next to what it measured.
#pragma once

#include "collectives/base/device.h"
#include "parallel/plan.h"
#include "parallel/prediction.h"

namespace lockstep {

// What a plan leaves open until ranks meet.
struct Environment {
  std::vector<std::string> algorithms = {};  // that `auto` has chosen, by bucket
  int ranks_per_node = 1;                    // of the replicas of a rank's part of the model
  bool computes_on_host = true;
};

// Whether a rank with that ledger needs no workspace of a device's kernels.
inline bool computes_on_host(const Ledger& ledger) {
  return !ledger.device() || !ledger.device()->enqueues();
}

// Throws Error (bad_input) for a rank that the plan has not, and for parameter servers, whose
// closed forms are their own.
Prediction predict(const Plan& plan, int rank, const Environment& environment = {});

}  // namespace lockstep
