#include "parallel/planner/replica_time.h"

#include <algorithm>
#include <vector>

#include "parallel/planner/exchange_time.h"

namespace lockstep {
namespace {

// Passes of one micro-batch through a rank that are left when its first gradients are complete: with
// virtual stages, p micro-batches still pass all stages but the one that is done first.
double overlapped_passes(const Arrangement& a) {
  const double v = a.virtual_stages;
  return (1 + std::min(a.pp, a.micro_batches()) * (v - 1)) / v;
}

// The part of a NIC that messages between stages leave to a rank's other exchanges: at least half, by
// max-min fairness.
double nic_part_left(const StepInputs& step, double pass) {
  const Arrangement& a = step.arrangement;
  if (a.pp == 1 || !stage_links(a, step.cluster, step.profile).uses_nics) return 1;
  const double messages = overlapped_passes(a) * a.virtual_stages;
  const double sending =
      messages * stage_sending_seconds(step.model, a, step.cluster, step.profile);
  return std::max(0.5, 1 - sending / pass);
}

// Parameters that are summed over the same ranks.
struct SummedParameters {
  double parameters = 0, ranks = 1;
  GroupLinks links;
  std::int64_t layers = 0;  // that have some of them
};
std::vector<SummedParameters> summed(const StepInputs& step, const RankParameters& parameters) {
  const Arrangement& a = step.arrangement;
  std::vector<SummedParameters> groups;
  if (a.replicas() > 1)
    groups.push_back({parameters.shared, static_cast<double>(a.replicas()),
                      replica_links(a, step.cluster, step.profile), step.model.layers});
  if (parameters.of_experts > 0 && a.expert_replicas() > 1)
    groups.push_back({parameters.of_experts, static_cast<double>(a.expert_replicas()),
                      expert_replica_links(a, step.cluster, step.profile),
                      step.model.expert_layers(0, step.model.layers)});
  return groups;
}

}  // namespace

double exposed_exchange(const StepInputs& step, const LayerKinds& layers,
                        const RankParameters& parameters, const HostWaits& waits) {
  const Arrangement& a = step.arrangement;
  const SoftwareProfile& profile = step.profile;
  const std::vector<SummedParameters> groups = summed(step, parameters);
  if (groups.empty()) return 0;
  const bool overlaps =
      a.pp > 1 ? profile.overlaps_gradients_of_stages : profile.overlaps_gradients;
  const bool use_nics = std::ranges::any_of(
      groups, [](const SummedParameters& group) { return group.links.uses_nics; });
  const auto exposed = [&](double seconds, const PassCost& cost, double waited) {
    if (!overlaps) return seconds;
    const double pass = std::min(cost.alone(), cost.total() + waited),
                 window = profile.overlap_window * pass,
                 hidden = window * (use_nics ? nic_part_left(step, pass) : 1);
    return std::max(profile.overlap_exposed * seconds, seconds - hidden) +
           profile.overlap_slowdown * window;
  };
  const bool in_halves = a.zero_stage > 0 && profile.sharded_optimizer;
  double gradients = 0, updated = 0;
  for (const SummedParameters& group : groups) {
    const double bytes = profile.gradient_wire_bytes * group.parameters;
    gradients += in_halves ? half_all_reduce_seconds(bytes, group.ranks, group.links)
                           : all_reduce_seconds(bytes, group.ranks, group.links);
    updated += half_all_reduce_seconds(profile.parameter_wire_bytes * group.parameters, group.ranks,
                                       group.links);
  }
  const PassCosts passes = step.costs.of(layers) * overlapped_passes(a);
  return exposed(gradients, passes.backward(), waits.backward) +
         (in_halves ? exposed(updated, passes.forward, waits.forward) : 0);
}

double exposed_sharded_exchange(const StepInputs& step, const RankParameters& parameters,
                                double compute) {
  double exchange = 0;
  for (const SummedParameters& group : summed(step, parameters))
    exchange += 3 * (bytes_of_16_bit * group.parameters * (group.ranks - 1) / group.ranks /
                         group.links.bytes_per_second +
                     step.profile.zero3_collectives_per_layer * static_cast<double>(group.layers) *
                         (group.ranks - 1) * step.profile.zero3_hop_seconds);
  return exchange - step.profile.zero3_overlap * std::min(compute, exchange);
}

double tied_embedding_seconds(const StepInputs& step) {
  const Arrangement& a = step.arrangement;
  if (!step.model.tied_head || a.has_ends_together()) return 0;
  const double embedding = static_cast<double>(padded_vocabulary(step.model, a)) / a.tp *
                           static_cast<double>(step.model.width);
  return all_reduce_seconds(step.profile.gradient_wire_bytes * embedding, 2,
                            stage_links(a, step.cluster, step.profile));
}

double update_seconds(const StepInputs& step, const RankParameters& parameters) {
  const Arrangement& a = step.arrangement;
  const bool divides = a.zero_stage >= 1;
  const double own = parameters.shared / (divides ? a.replicas() : 1) +
                     parameters.of_experts / (divides ? a.expert_replicas() : 1);
  return step.profile.optimizer_bytes * own /
             (step.cluster.memory_bytes_per_second * step.profile.memory_efficiency) +
         step.profile.optimizer_launches * step.profile.launch_seconds;
}

}  // namespace lockstep
