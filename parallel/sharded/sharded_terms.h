// What sharding states for a rank's prediction. What lies in a second tier of memory is stated by
// offload.h.
#pragma once

#include "parallel/plan/environment.h"
#include "parallel/plan/terms.h"
#include "parallel/sharded/sharding.h"

namespace lockstep {

// The exchange of gradients and parameters, and the norm over the ranks that hold the shards. Scratch
// is held at the two moments.
Terms sharded_exchange_terms(const Plan& plan, int rank, const Sharding& sharding,
                             const RankUnits& units, const ReplicaFacts& facts, Moment reduction,
                             Moment norm);
// Parameters, gradients and the optimizer's states, as far as the tier does not hold them.
Terms sharded_state_terms(const Plan& plan, int rank, const Sharding& sharding,
                          const RankUnits& units, const Parameters& parameters);

}  // namespace lockstep
