// How long exchanges between ranks take: latency and bytes over the rate of the slowest link.
#pragma once

#include "parallel/planner/arrangement.h"
#include "parallel/planner/closed_terms.h"
#include "parallel/planner/kernel_cost.h"

namespace lockstep {

// Of the ranks along tp; of those that sum gradients, cp x dp ranks.
GroupLinks tensor_links(const Arrangement& arrangement, const ClusterSheet& cluster,
                        const SoftwareProfile& profile);
GroupLinks replica_links(const Arrangement& arrangement, const ClusterSheet& cluster,
                         const SoftwareProfile& profile);

// Of the replicas of a rank's experts, and of the ranks that share an expert.
GroupLinks expert_replica_links(const Arrangement& arrangement, const ClusterSheet& cluster,
                                const SoftwareProfile& profile);
GroupLinks expert_tensor_links(const Arrangement& arrangement, const ClusterSheet& cluster,
                               const SoftwareProfile& profile);

// One reduce-scatter or all-gather of `bytes` in all: (p - 1) / p of them pass each link.
double half_all_reduce_seconds(double bytes, double ranks, const GroupLinks& links);

// One hop of cp's ring: the keys and values that a rank passes on, `times` as many bytes in all.
double context_hop_seconds(const Transformer& model, const Arrangement& arrangement,
                           const ClusterSheet& cluster, const SoftwareProfile& profile,
                           double times);
// All-to-all among the ranks along ep, to which each sends so many bytes in all, equally many to each
// of them and itself: those to its node over NVLink, meanwhile the others over its NIC.
double all_to_all_seconds(double bytes, const Arrangement& arrangement, const ClusterSheet& cluster,
                          const SoftwareProfile& profile);
// Whether all stages of a pipeline are in one node.
bool has_stages_in_nodes(const Arrangement& arrangement, const ClusterSheet& cluster);
// Between stages.
GroupLinks stage_links(const Arrangement& arrangement, const ClusterSheet& cluster,
                       const SoftwareProfile& profile);
// How long a message to the next stage keeps its sender's link busy.
double stage_sending_seconds(const Transformer& model, const Arrangement& arrangement,
                             const ClusterSheet& cluster, const SoftwareProfile& profile);
// A message between stages, until the next stage has it whole.
double stage_hop_seconds(const Transformer& model, const Arrangement& arrangement,
                         const ClusterSheet& cluster, const SoftwareProfile& profile);

}  // namespace lockstep
