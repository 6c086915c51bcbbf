#include "parallel/planner/quick_step.h"

#include <algorithm>
#include <cmath>

#include "parallel/planner/exchange_time.h"
#include "parallel/planner/step_memory.h"

namespace lockstep {
namespace {

double total(const PassCosts& costs) { return costs.forward.total() + costs.backward().total(); }

}  // namespace

QuickStep quick_step(const StepInputs& step) {
  const Arrangement& a = step.arrangement;
  const double p = a.pp, v = a.virtual_stages, m = a.micro_batches(),
               all_layers = static_cast<double>(step.model.layers),
               layers = v * std::ceil(all_layers / (p * v)),  // of the ranks that have the most
      of_layers = layers * total(step.costs.layer), embedding = total(step.costs.embedding),
               head = total(step.costs.head);
  const bool is_pipeline = a.pp > 1;
  const double slowest = of_layers + (is_pipeline ? std::max(embedding, head) : embedding + head);
  const double mean = (all_layers * total(step.costs.layer) + embedding + head) / p;
  const double hop = is_pipeline ? stage_hop_seconds(step.model, a, step.cluster, step.profile) : 0;
  QuickStep result;
  result.seconds = pipeline_seconds({.ranks = p,
                                     .virtual_stages = v,
                                     .micro_batches = m,
                                     .slowest = slowest,
                                     .mean = mean,
                                     .hop = hop,
                                     .is_sender_busy = step.profile.blocking_sends});
  const double first = first_rank_parameters(step.model, a, layers),
               last = is_pipeline ? last_rank_parameters(step.model, a, layers) : first,
               parameters = std::max(first, last);
  if (a.zero_stage >= 3)
    result.seconds += m * exposed_sharded_exchange(step, parameters, result.seconds / m);
  else
    result.seconds += exposed_exchange(step, layers, parameters) + tied_embedding_seconds(step);
  result.seconds += update_seconds(step, parameters) + step.profile.step_overhead;

  const double chunk = layers / v * kept_layer_bytes(step.model, a, step.profile);
  const auto chunks = [&](double rank) {
    return v > 1 ? std::min(2 * (p - rank - 1) + (v - 1) * p + 1, m * v) : std::min(p - rank, m);
  };
  result.largest_memory = std::max(
      rank_memory(step.model, a, step.profile, first, chunks(0) * chunk, !is_pipeline).total(),
      rank_memory(step.model, a, step.profile, last, chunks(p - 1) * chunk, true).total());
  return result;
}

}  // namespace lockstep
