#include "parallel/planner/replica_time.h"

#include <algorithm>

#include "parallel/planner/exchange_time.h"

namespace lockstep {
namespace {

// Passes of one micro-batch through a rank that are left when its first gradients are complete: with
// virtual stages, p micro-batches still pass all stages but the one that is done first.
double overlapped_passes(const Arrangement& a) {
  const double v = a.virtual_stages;
  return (1 + std::min(a.pp, a.micro_batches()) * (v - 1)) / v;
}

}  // namespace

double exposed_exchange(const StepInputs& step, double layers, double parameters) {
  const Arrangement& a = step.arrangement;
  const SoftwareProfile& profile = step.profile;
  if (a.replicas() == 1) return 0;
  const GroupLinks links = replica_links(a, step.cluster, profile);
  const bool overlaps =
      a.pp > 1 ? profile.overlaps_gradients_of_stages : profile.overlaps_gradients;
  const auto exposed = [&](double seconds, double pass) {
    if (!overlaps) return seconds;
    const double window = profile.overlap_window * pass;
    return std::max(profile.overlap_exposed * seconds, seconds - window) +
           profile.overlap_slowdown * window;
  };
  const double ranks = a.replicas(), passes = overlapped_passes(a) * layers,
               gradient_bytes = profile.gradient_wire_bytes * parameters,
               backward = passes * step.costs.layer.backward().total(),
               forward = passes * step.costs.layer.forward.total();
  if (a.zero_stage == 0 || !profile.sharded_optimizer)
    return exposed(all_reduce_seconds(gradient_bytes, ranks, links), backward);
  return exposed(half_all_reduce_seconds(gradient_bytes, ranks, links), backward) +
         exposed(half_all_reduce_seconds(profile.parameter_wire_bytes * parameters, ranks, links),
                 forward);
}

double exposed_sharded_exchange(const StepInputs& step, double parameters, double compute) {
  const double ranks = step.arrangement.replicas();
  if (ranks == 1) return 0;
  const GroupLinks links = replica_links(step.arrangement, step.cluster, step.profile);
  const double exchange =
      3 * (bytes_of_16_bit * parameters * (ranks - 1) / ranks / links.bytes_per_second +
           step.profile.zero3_collectives_per_layer * static_cast<double>(step.model.layers) *
               (ranks - 1) * step.profile.zero3_hop_seconds);
  return exchange - step.profile.zero3_overlap * std::min(compute, exchange);
}

double tied_embedding_seconds(const StepInputs& step) {
  const Arrangement& a = step.arrangement;
  if (!step.model.tied_head || a.pp == 1) return 0;
  const double embedding = static_cast<double>(padded_vocabulary(step.model, a)) / a.tp *
                           static_cast<double>(step.model.width);
  const GroupLinks links{step.profile.nic_efficiency * step.cluster.nic_bytes_per_second,
                         step.profile.nic_latency};
  return all_reduce_seconds(step.profile.gradient_wire_bytes * embedding, 2, links);
}

double update_seconds(const StepInputs& step, double parameters) {
  const Arrangement& a = step.arrangement;
  return step.profile.optimizer_bytes * parameters / (a.zero_stage >= 1 ? a.replicas() : 1) /
             (step.cluster.memory_bytes_per_second * step.profile.memory_efficiency) +
         step.profile.optimizer_launches * step.profile.launch_seconds;
}

}  // namespace lockstep
