// Buckets whose gradients are compressed on the wire.
#pragma once

#include <vector>

#include "parallel/data/bucket.h"
#include "parallel/exchange/compressed_sum.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/terms.h"

namespace lockstep {

std::vector<ExchangedBucket> exchanged_buckets(const Parameters& parameters,
                                               const std::vector<Bucket>& buckets);

// Adds their traffic, and the memory that compressing takes. Collectives have scratch at `moment`.
void add_compressed(Terms& terms, const Plan& plan, const ReplicaGroup& replicas,
                    const std::vector<ExchangedBucket>& buckets, Moment moment);

}  // namespace lockstep
