#include "parallel/planner/quick_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "parallel/planner/exchange_time.h"
#include "parallel/planner/pipeline_time.h"
#include "parallel/planner/step_memory.h"

namespace lockstep {
namespace {

double seconds_of(const PassCosts& costs) {
  return costs.forward.alone() + costs.backward().alone();
}

// Of so many layers of a rank in the middle of the pipeline, which has all kinds of layers in turn.
LayerKinds usual_layers(const Transformer& model, std::int64_t layers) {
  if (model.experts.count == 0) return {static_cast<int>(layers), 0};
  const std::int64_t with_experts =
      std::min(model.expert_layers(0, model.layers),
               (layers + model.experts.period - 1) / model.experts.period);
  return {static_cast<int>(layers - with_experts), static_cast<int>(with_experts)};
}

// Passes of a rank in seconds. Where both gradients are one pass, the kernels of one run while the host
// issues those of the other.
struct RankPasses {
  RankPasses(const PassCosts& of_rank, bool splits_backward)
      : forward(of_rank.forward.alone()),
        input_gradient(splits_backward
                           ? of_rank.input_gradient.alone()
                           : of_rank.backward().alone() * of_rank.input_gradient.total() /
                                 of_rank.backward().total()),
        weight_gradient(splits_backward ? of_rank.weight_gradient.alone()
                                        : of_rank.backward().alone() - input_gradient) {}
  double forward, input_gradient, weight_gradient;
};

// How much longer the schedule takes than 1F1B with as many virtual stages, by its closed form; if that
// does not hold for such times, by a replay of as many micro-batches as show its bubble.
double beyond_1f1b(const ScheduleEntry& schedule, const Arrangement& a, const PassCosts& of_rank) {
  if (schedule.name == "1f1b" || schedule.name == "interleaved") return 0;
  const double p = a.pp, v = a.virtual_stages, m = a.micro_batches(), each = seconds_of(of_rank);
  const RankPasses passes(of_rank, schedule.splits_backward);
  constexpr double ticks = 1e9;
  const auto rational = [](double seconds) { return Rational(std::llround(ticks * seconds)); };
  const auto makespan =
      schedule.makespan(a.shape(), {.forward = rational(passes.forward),
                                    .input_gradient = rational(passes.input_gradient),
                                    .weight_gradient = rational(passes.weight_gradient)});
  if (makespan) return value_of(*makespan) / ticks - (m + (p - 1) / v) * each;
  const int shown = std::min(a.micro_batches(), 4 * a.pp);
  const std::vector<StagePasses> stages(
      static_cast<std::size_t>(a.stages()),
      stage_passes(passes.forward / v, passes.input_gradient / v, passes.weight_gradient / v));
  return pipeline_times(make_schedule(schedule, {a.pp, shown, a.virtual_stages}), stages, 0, false)
             .makespan -
         (shown + (p - 1) / v) * each;
}

}  // namespace

QuickStep quick_step(const StepInputs& step) {
  const Transformer& model = step.model;
  const Arrangement& a = step.arrangement;
  const double p = a.pp, v = a.virtual_stages, m = a.micro_batches();
  const ScheduleEntry& schedule = find_schedule(a.schedule);
  const bool is_pipeline = a.pp > 1;
  const bool is_v = is_pipeline && a.has_ends_together();
  const int rank_of_head = is_v ? 0 : a.pp - 1;
  // Where stages do not divide the layers, the first stage has fewer, and mostly the last one too, as in
  // balanced_layers().
  const std::int64_t rest = model.layers % a.stages(), fewest = model.layers / a.stages(),
                     most = fewest + (rest > 0 ? 1 : 0);
  const auto of_rank = [&](bool has_fewer) {
    return usual_layers(model, most * a.virtual_stages - (has_fewer ? most - fewest : 0));
  };
  const bool last_stage_has_fewer = rest != a.stages() - 1;
  const LayerKinds middle = of_rank(false);
  // On a V the first rank has both ends, and the last one two stages in the middle. The first layers may
  // have no experts.
  LayerKinds first = usual_layers(model, !is_v                  ? most * (a.virtual_stages - 1)
                                         : last_stage_has_fewer ? fewest
                                                                : most);
  const auto with_experts = static_cast<int>(model.expert_layers(0, fewest));
  first += {static_cast<int>(fewest) - with_experts, with_experts};
  const LayerKinds last = is_v ? middle : of_rank(last_stage_has_fewer);
  const auto seconds = [&](const LayerKinds& layers) { return seconds_of(step.costs.of(layers)); };
  const double embedding = seconds_of(step.costs.embedding), head = seconds_of(step.costs.head);
  QuickStep result;
  result.seconds = pipeline_seconds(
      {.ranks = p,
       .virtual_stages = v,
       .micro_batches = m,
       .slowest = is_pipeline ? std::max({seconds(first) + embedding + (is_v ? head : 0),
                                          seconds(last) + (is_v ? 0 : head),
                                          a.pp > 2 ? seconds(middle) : 0})
                              : seconds(middle) + embedding + head,
       .mean = (seconds(usual_layers(model, model.layers)) + embedding + head) / p,
       .hop = is_pipeline ? stage_hop_seconds(model, a, step.cluster, step.profile) : 0,
       .is_sender_busy = step.profile.blocking_sends});

  if (is_pipeline) {
    PassCosts all = step.costs.of(usual_layers(model, model.layers));
    all += step.costs.embedding;
    all += step.costs.head;
    result.seconds += beyond_1f1b(schedule, a, all * (1 / p));
  }

  // It adds up passes that each wait for their host.
  constexpr HostWaits longest_waits = {std::numeric_limits<double>::infinity(),
                                       std::numeric_limits<double>::infinity()};
  const RankParameters most_parameters =
      rank_parameters(model, a, middle, true, a.has_ends_together());
  if (a.zero_stage >= 3)
    result.seconds += m * exposed_sharded_exchange(step, most_parameters, result.seconds / m);
  else
    result.seconds += exposed_exchange(step, middle, most_parameters, longest_waits) +
                      tied_embedding_seconds(step);
  result.seconds += update_seconds(step, most_parameters) + step.profile.step_overhead;

  const auto memory = [&](int rank, const LayerKinds& layers) {
    const double micro_batches =
        is_pipeline ? schedule.in_flight(a.shape(), schedule.splits_backward ? 0 : rank).value() / v
                    : 1;
    const bool has_first = rank == 0, has_last = rank == rank_of_head;
    return rank_memory(model, a, step.profile,
                       rank_parameters(model, a, layers, has_first, has_last),
                       micro_batches * kept_stage_bytes(model, a, step.profile, layers), has_last)
        .total();
  };
  result.largest_memory =
      is_pipeline
          ? std::max({memory(0, first), memory(a.pp - 1, last), a.pp > 2 ? memory(1, middle) : 0})
          : memory(0, middle);
  return result;
}

}  // namespace lockstep
