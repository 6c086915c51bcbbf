#include "parallel/planner/quick_step.h"

#include <algorithm>
#include <cmath>

#include "parallel/planner/exchange_time.h"
#include "parallel/planner/step_memory.h"

namespace lockstep {
namespace {

double total(const PassCosts& costs) { return costs.forward.total() + costs.backward().total(); }

// Of so many layers of a rank in the middle of the pipeline, which has all kinds of layers in turn.
LayerKinds usual_layers(const Transformer& model, std::int64_t layers) {
  if (model.experts.count == 0) return {static_cast<int>(layers), 0};
  const std::int64_t with_experts =
      std::min(model.expert_layers(0, model.layers),
               (layers + model.experts.period - 1) / model.experts.period);
  return {static_cast<int>(layers - with_experts), static_cast<int>(with_experts)};
}

}  // namespace

QuickStep quick_step(const StepInputs& step) {
  const Transformer& model = step.model;
  const Arrangement& a = step.arrangement;
  const double p = a.pp, v = a.virtual_stages, m = a.micro_batches();
  const bool is_pipeline = a.pp > 1;
  // Where stages do not divide the layers, the first stage has fewer, and mostly the last one too, as in
  // balanced_layers().
  const std::int64_t rest = model.layers % a.stages(), fewest = model.layers / a.stages(),
                     most = fewest + (rest > 0 ? 1 : 0);
  const auto of_rank = [&](bool has_fewer) {
    return usual_layers(model, most * a.virtual_stages - (has_fewer ? most - fewest : 0));
  };
  // The first layers may have no experts.
  LayerKinds first = usual_layers(model, most * (a.virtual_stages - 1));
  const auto with_experts = static_cast<int>(model.expert_layers(0, fewest));
  first += {static_cast<int>(fewest) - with_experts, with_experts};
  const LayerKinds last = of_rank(rest != a.stages() - 1), middle = of_rank(false);
  const auto seconds = [&](const LayerKinds& layers) { return total(step.costs.of(layers)); };
  const double embedding = total(step.costs.embedding), head = total(step.costs.head);
  QuickStep result;
  result.seconds = pipeline_seconds(
      {.ranks = p,
       .virtual_stages = v,
       .micro_batches = m,
       .slowest = is_pipeline ? std::max({seconds(first) + embedding, seconds(last) + head,
                                          a.pp > 2 ? seconds(middle) : 0})
                              : seconds(middle) + embedding + head,
       .mean = (seconds(usual_layers(model, model.layers)) + embedding + head) / p,
       .hop = is_pipeline ? stage_hop_seconds(model, a, step.cluster, step.profile) : 0,
       .is_sender_busy = step.profile.blocking_sends});

  const RankParameters most_parameters = rank_parameters(model, a, middle, true, !is_pipeline);
  if (a.zero_stage >= 3)
    result.seconds += m * exposed_sharded_exchange(step, most_parameters, result.seconds / m);
  else
    result.seconds +=
        exposed_exchange(step, middle, most_parameters) + tied_embedding_seconds(step);
  result.seconds += update_seconds(step, most_parameters) + step.profile.step_overhead;

  const auto memory = [&](double rank, const LayerKinds& layers) {
    const double chunks =
        v > 1 ? std::min(2 * (p - rank - 1) + (v - 1) * p + 1, m * v) : std::min(p - rank, m);
    const bool has_first = rank == 0, has_last = rank == p - 1;
    return rank_memory(model, a, step.profile,
                       rank_parameters(model, a, layers, has_first, has_last),
                       chunks * kept_stage_bytes(model, a, step.profile, layers) / v, has_last)
        .total();
  };
  result.largest_memory =
      is_pipeline
          ? std::max({memory(0, first), memory(p - 1, last), a.pp > 2 ? memory(1, middle) : 0})
          : memory(0, middle);
  return result;
}

}  // namespace lockstep
