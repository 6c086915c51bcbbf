#include "parallel/planner/exchange_time.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

double nvlink(const ClusterSheet& cluster, const SoftwareProfile& profile) {
  return profile.nvlink_efficiency * cluster.nvlink_bytes_per_second;
}
double nic(const ClusterSheet& cluster, const SoftwareProfile& profile) {
  return profile.nic_efficiency * cluster.nic_bytes_per_second;
}

// Of consecutive ranks.
GroupLinks links_of_neighbours(double ranks, const ClusterSheet& cluster,
                               const SoftwareProfile& profile) {
  if (ranks <= cluster.gpus_per_node) return {nvlink(cluster, profile), profile.nvlink_latency};
  return {.bytes_per_second =
              std::min(nvlink(cluster, profile), cluster.gpus_per_node * nic(cluster, profile)),
          .latency = 2 * profile.nic_latency * std::log2(ranks),
          .uses_nics = true};
}
// How many ranks of a group share a node, if they are `apart` from each other.
double number_in_node(double ranks, double apart, const ClusterSheet& cluster) {
  return std::clamp(std::floor(cluster.gpus_per_node / apart), 1.0, ranks);
}
GroupLinks links_of_replicas(double ranks, double in_node, const ClusterSheet& cluster,
                             const SoftwareProfile& profile) {
  if (in_node >= ranks) return {nvlink(cluster, profile), profile.nvlink_latency};
  const double nics = profile.flat_ring ? 1 : in_node;
  return {.bytes_per_second = std::min(nvlink(cluster, profile), nics * nic(cluster, profile)),
          .latency = 2 * profile.nic_latency * std::log2(ranks),
          .uses_nics = true};
}

// What a stage passes to the next one, on all its tensor-parallel ranks together.
double stage_bytes(const Transformer& model, const Arrangement& a) {
  return bytes_of_16_bit * a.tokens() * static_cast<double>(model.width);
}

// Ranks along ep in the node of a rank, with itself. Where nodes do not divide the groups of ep: of the
// rank that has the fewest.
double least_in_node(const Arrangement& a, const ClusterSheet& cluster) {
  const std::int64_t group = std::int64_t{a.ep} * a.etp,
                     node = static_cast<std::int64_t>(cluster.gpus_per_node);
  if (a.gpus <= node || node % group == 0) return a.ep;
  const std::int64_t together = group % node == 0 ? node : std::gcd(group, node);
  return static_cast<double>(std::max<std::int64_t>(1, together / a.etp));
}

}  // namespace

GroupLinks tensor_links(const Arrangement& a, const ClusterSheet& cluster,
                        const SoftwareProfile& profile) {
  return links_of_neighbours(a.tp, cluster, profile);
}
GroupLinks expert_tensor_links(const Arrangement& a, const ClusterSheet& cluster,
                               const SoftwareProfile& profile) {
  return links_of_neighbours(a.etp, cluster, profile);
}
GroupLinks replica_links(const Arrangement& a, const ClusterSheet& cluster,
                         const SoftwareProfile& profile) {
  double in_node = number_in_node(a.replicas(), a.tp, cluster);
  if (a.stages_first)
    in_node = number_in_node(a.cp, a.tp, cluster) *
              number_in_node(a.dp, double{1} * a.tp * a.cp * a.pp, cluster);
  return links_of_replicas(a.replicas(), in_node, cluster, profile);
}
GroupLinks expert_replica_links(const Arrangement& a, const ClusterSheet& cluster,
                                const SoftwareProfile& profile) {
  const double ranks = a.expert_replicas();
  return links_of_replicas(ranks, number_in_node(ranks, a.ep * a.etp, cluster), cluster, profile);
}

double half_all_reduce_seconds(double bytes, double ranks, const GroupLinks& links) {
  if (ranks <= 1) return 0;
  return links.latency + (ranks - 1) / ranks * bytes / links.bytes_per_second;
}

double context_hop_seconds(const Transformer& model, const Arrangement& a,
                           const ClusterSheet& cluster, const SoftwareProfile& profile,
                           double times) {
  const double bytes = times * bytes_of_16_bit * a.tokens() * model.kv_columns(a.tp);
  const bool in_node = a.tp * a.cp <= cluster.gpus_per_node;
  return in_node ? profile.nvlink_latency + bytes / nvlink(cluster, profile)
                 : profile.nic_latency + bytes / nic(cluster, profile);
}

double all_to_all_seconds(double bytes, const Arrangement& a, const ClusterSheet& cluster,
                          const SoftwareProfile& profile) {
  if (a.ep == 1) return 0;
  const double ranks = a.ep, in_node = least_in_node(a, cluster);
  const double to_node = (in_node - 1) / ranks * bytes / nvlink(cluster, profile);
  if (in_node >= ranks) return profile.nvlink_latency + to_node;
  return profile.nic_latency +
         std::max(to_node, (ranks - in_node) / ranks * bytes / nic(cluster, profile));
}

bool has_stages_in_nodes(const Arrangement& a, const ClusterSheet& cluster) {
  const std::int64_t node = static_cast<std::int64_t>(cluster.gpus_per_node),
                     pipeline = std::int64_t{a.tp} * a.cp * a.pp;
  return a.gpus <= node || (a.stages_first && node % pipeline == 0);
}

GroupLinks stage_links(const Arrangement& a, const ClusterSheet& cluster,
                       const SoftwareProfile& profile) {
  return has_stages_in_nodes(a, cluster)
             ? GroupLinks{nvlink(cluster, profile), profile.nvlink_latency}
             : GroupLinks{.bytes_per_second = nic(cluster, profile),
                          .latency = profile.nic_latency,
                          .uses_nics = true};
}

double stage_sending_seconds(const Transformer& model, const Arrangement& a,
                             const ClusterSheet& cluster, const SoftwareProfile& profile) {
  const bool is_split = a.sequence_parallel || profile.scatter_gather;
  return stage_bytes(model, a) / (is_split ? a.tp : 1) /
         stage_links(a, cluster, profile).bytes_per_second;
}

double stage_hop_seconds(const Transformer& model, const Arrangement& a,
                         const ClusterSheet& cluster, const SoftwareProfile& profile) {
  const double hop =
      stage_links(a, cluster, profile).latency + stage_sending_seconds(model, a, cluster, profile);
  if (a.sequence_parallel || !profile.scatter_gather) return hop;
  return hop +
         half_all_reduce_seconds(stage_bytes(model, a), a.tp, tensor_links(a, cluster, profile));
}

}  // namespace lockstep
