// Buckets whose gradients are compressed on the wire.
#pragma once

#include <vector>

#include "parallel/data/bucket_sums.h"

namespace lockstep {

// The plan's.
ExchangeMethod exchange_of(const Plan& plan);
// Whether the plan's exchange has error feedback that skipped steps must not change.
bool may_skip_kept(const Plan& plan);

std::vector<ExchangedBucket> exchanged_buckets(const Parameters& parameters,
                                               const std::vector<Bucket>& buckets);

// Adds their traffic, and the memory that compressing takes. Returns the scratch of its collectives, in bytes.
Count add_compressed(Terms& terms, const Plan& plan, const ReplicaGroup& replicas,
                     const Parameters& parameters, const BucketUse& use);

}  // namespace lockstep
