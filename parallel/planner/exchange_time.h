// How long exchanges between ranks take: latency and bytes over the rate of the slowest link.
#pragma once

#include "parallel/planner/arrangement.h"
#include "parallel/planner/closed_terms.h"

namespace lockstep {

// Of the ranks along tp; of those that sum gradients, which are `tp` apart.
GroupLinks tensor_links(const Arrangement& arrangement, const ClusterSheet& cluster,
                        const SoftwareProfile& profile);
GroupLinks replica_links(const Arrangement& arrangement, const ClusterSheet& cluster,
                         const SoftwareProfile& profile);

// One reduce-scatter or all-gather of `bytes` in all: (p - 1) / p of them pass each link.
double half_all_reduce_seconds(double bytes, double ranks, const GroupLinks& links);

// One hop of cp's ring: the keys and values that a rank passes on, `times` as many bytes in all.
double context_hop_seconds(const Transformer& model, const Arrangement& arrangement,
                           const ClusterSheet& cluster, const SoftwareProfile& profile,
                           double times);
// A message between stages.
double stage_hop_seconds(const Transformer& model, const Arrangement& arrangement,
                         const ClusterSheet& cluster, const SoftwareProfile& profile);

}  // namespace lockstep
