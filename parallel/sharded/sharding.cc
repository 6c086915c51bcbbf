#include "parallel/sharded/sharding.h"

#include <algorithm>
#include <map>

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {
namespace {

Prefetch prefetch_from_name(const std::string& name) {
  if (name == "none") return Prefetch::none;
  return name == "backward-pre" ? Prefetch::backward_pre : Prefetch::backward_post;
}

// The events of all micro-batches of a step, of a stage that is not in a pipeline.
std::vector<UnitEvent> step_order(const Plan& plan, const Sharding& sharding,
                                  const RankUnits& units) {
  std::vector<UnitEvent> all;
  const int batches = plan.options.micro_batches;
  for (int m = 0; m < batches; ++m)
    std::ranges::copy(
        training_order(units.stages.front().shape, sharding.order, sharding.reduces(m, batches)),
        std::back_inserter(all));
  return all;
}

const std::vector<Action>& own_actions(const Plan& plan, int rank) {
  return plan.schedule.by_rank[static_cast<std::size_t>(plan.place(rank, Axis::pp))];
}

// Buffers of each size are reused, so the peak is the largest number of each size in use.
class Buffers {
 public:
  void take(Count count) {
    auto& [now, most] = of_size_[count];
    most = std::max(most, ++now);
  }
  void give(Count count) { --of_size_[count].first; }
  Count peak() const {
    Count sum = 0;
    for (const auto& [count, numbers] : of_size_) sum += count * numbers.second;
    return sum;
  }

 private:
  std::map<Count, std::pair<Count, Count>> of_size_;  // in use now, and at most
};

// Whether a rank takes its only stage forward and at once back, micro-batch by micro-batch.
bool alternates(const Schedule& schedule) {
  if (schedule.stages > 1) return false;
  Pass expected = Pass::forward;
  for (const Action& action : schedule.by_rank.front()) {
    if (!is_compute(action.pass)) continue;
    if (action.pass != expected) return false;
    expected = expected == Pass::forward ? Pass::backward : Pass::forward;
  }
  return true;
}

}  // namespace

std::optional<Sharding> sharding_of(const Plan& plan) {
  const TrainOptions& o = plan.options;
  const int stage = plan.zero_stage();
  if (stage == 0) return {};
  Sharding sharding{.stage = stage,
                    .reduces_every_micro_batch = o.accumulation == "sync",
                    .all_reduces_gradients = stage < 3 && o.zero_volume == "all-reduce",
                    .by_stage = !alternates(plan.schedule),
                    .order = {.reshard_after_forward = o.reshard_after_forward == "yes",
                              .forward_prefetch = o.forward_prefetch,
                              .prefetch = prefetch_from_name(o.prefetch)}};
  sharding.order.gathers = sharding.shards_parameters();
  return sharding;
}

const RankUnits::Stage& RankUnits::stage(int number) const {
  return *std::ranges::find(stages, number, &Stage::number);
}

RankUnits sharded_units(const RankModel& model) {
  RankUnits units;
  const EmbeddingCopies copies = model.embedding_copies();
  for (const auto& [number, stage] : model.stages) {
    const std::vector<Unit> of_stage = stage.units();
    const StageShape shape{.blocks = stage.layers(),
                           .has_first_end = stage.is_first(),
                           .has_last_end = stage.is_last()};
    units.stages.push_back({.number = number, .shape = shape, .first = units.all.size()});
    units.all.resize(units.stages.back().end());
    int block = root_unit;
    for (std::size_t place = 0; place < of_stage.size(); ++place) {
      const bool is_end =
          (stage.is_first() && place == 0) || (stage.is_last() && place + 1 == of_stage.size());
      UnitParameters& unit = units.all[units.stages.back().place(is_end ? root_unit : ++block)];
      for (int i = of_stage[place].first; i <= of_stage[place].last; ++i) {
        unit.parameters.push_back(i);
        unit.count += model.parameters.list()[static_cast<std::size_t>(i)].count;
        if (copies.contain(i)) unit.tied_copy = i;
      }
    }
  }
  return units;
}

std::vector<OwnPart> own_parts(const Parameters& parameters, const RankUnits& units, int ranks,
                               int rank, const std::vector<Range>& ranges) {
  std::vector<OwnPart> parts;
  for (std::size_t u = 0; u < units.all.size(); ++u) {
    const Parts shards(units.all[u].count, ranks);
    const Count first = shards.offset(rank), end = first + shards[rank];
    Count in_unit = 0;  // where the parameter begins
    for (const int i : units.all[u].parameters) {
      const Parameter& parameter = parameters.list()[static_cast<std::size_t>(i)];
      for (const Range& range : ranges) {
        const Count from = std::max(range.first - parameter.offset, Count{0}),
                    to = std::min(range.first + range.count - parameter.offset, parameter.count);
        const Count begin = std::max(in_unit + from, first), stop = std::min(in_unit + to, end);
        if (from < to && begin < stop)
          parts.push_back({.unit = u, .range = {begin - first, stop - begin}});
      }
      in_unit += parameter.count;
    }
  }
  return parts;
}

ShardedTraffic sharded_traffic(const Plan& plan, int rank, const Sharding& sharding,
                               const RankUnits& units) {
  ShardedTraffic sum;
  const auto ring = [&](const auto& algorithm, std::size_t unit) {
    return algorithm.traffic({.ranks = plan.shards(), .count = units.all[unit].count},
                             plan.shard(rank));
  };
  const auto gather = [&](std::size_t unit) { sum.parameters += ring(all_gather_ring(), unit); };
  const auto reduce = [&](std::size_t unit) {
    sum.gradients += sharding.all_reduces_gradients ? ring(all_reduce_ring(), unit)
                                                    : ring(reduce_scatter_ring(), unit);
  };
  if (sharding.by_stage) {
    for (const Action& action : own_actions(plan, rank))
      if (action.pass == Pass::unshard)
        for (std::size_t u = units.stage(action.stage).first; u < units.stage(action.stage).end();
             ++u)
          gather(u);
    for (std::size_t u = 0; u < units.all.size(); ++u) reduce(u);
  } else {
    for (const UnitEvent& event : step_order(plan, sharding, units)) {
      if (event.kind == UnitEvent::Kind::gather) gather(units.stages.front().place(event.unit));
      if (event.kind == UnitEvent::Kind::reduce) reduce(units.stages.front().place(event.unit));
    }
  }
  const int replicas = plan.options.replicas, replica = plan.place(rank, Axis::dp) / plan.shards();
  for (std::size_t u = 0; u < units.all.size(); ++u) {
    if (!sharding.shards_parameters()) gather(u);
    if (replicas == 1) continue;
    const Count own = Parts(units.all[u].count, plan.shards())[plan.shard(rank)];
    sum.between_replicas += all_reduce_ring().traffic({.ranks = replicas, .count = own}, replica);
  }
  return sum;
}

std::vector<int> gathers_of_units(const Plan& plan, int rank, const Sharding& sharding,
                                  const RankUnits& units) {
  std::vector<int> gathers(units.all.size());
  if (sharding.by_stage) {
    for (const Action& action : own_actions(plan, rank))
      if (action.pass == Pass::unshard)
        for (std::size_t u = units.stage(action.stage).first; u < units.stage(action.stage).end();
             ++u)
          ++gathers[u];
    return gathers;
  }
  for (const UnitEvent& event : step_order(plan, sharding, units))
    if (event.kind == UnitEvent::Kind::gather) ++gathers[units.stages.front().place(event.unit)];
  return gathers;
}

std::pair<std::string, std::string> sharded_formulas(const Plan& plan, const Sharding& sharding) {
  const int batches = sharding.by_stage ? 1 : plan.options.micro_batches;
  const bool each = sharding.shards_gradients() && sharding.reduces_every_micro_batch;
  const std::string times = batches > 1 ? "K * " : "";
  const std::string gradients = (each ? times : "") +
                                (sharding.all_reduces_gradients ? "2(P-1)/P" : "(P-1)/P") +
                                " * Psi * beta_g";
  if (!sharding.shards_parameters()) return {gradients, "(P-1)/P * Psi * beta"};
  if (sharding.by_stage) return {gradients, "(P-1)/P * (Psi of each UNSHARD) * beta"};
  return {gradients, times + "(P-1)/P * " +
                         (sharding.order.reshard_after_forward ? "(2 Psi - Psi_root)" : "Psi") +
                         " * beta"};
}

Count sharded_communication_bytes(const Plan& plan, const RankUnits& units) {
  const DType type = *plan.options.reduce_dtype;
  if (plan.length(Axis::dp) == 1 || type == plan.options.dtype) return 0;
  return std::ranges::max(units.all, {}, &UnitParameters::count).count * element_bytes(type);
}

namespace {

// Peaks of gathered parameters and of whole gradients, micro-batch by micro-batch.
std::pair<Count, Count> peaks_by_order(const Plan& plan, const Sharding& sharding,
                                       const RankUnits& units) {
  Buffers values, gradients;
  std::vector<bool> has_gradients(units.all.size());
  Count reducing = 0;  // elements of the buffer that is being reduced; 0: none
  const auto give_reduced = [&] {
    if (reducing > 0) gradients.give(std::exchange(reducing, 0));
  };
  for (const UnitEvent& event : step_order(plan, sharding, units)) {
    const std::size_t unit = units.stages.front().place(event.unit);
    const Count count = units.all[unit].count;
    if (event.kind == UnitEvent::Kind::gather) values.take(count);
    if (event.kind == UnitEvent::Kind::free) values.give(count);
    if (event.kind == UnitEvent::Kind::use && event.use == UnitUse::backward &&
        !has_gradients[unit]) {
      gradients.take(count);
      has_gradients[unit] = true;
    }
    if (event.kind == UnitEvent::Kind::reduce) {
      give_reduced();
      has_gradients[unit] = false;
      reducing = count;
      if (!plan.options.overlap || plan.length(Axis::dp) == 1) give_reduced();
    }
  }
  return {values.peak(), gradients.peak()};
}

// The same by the actions of a pipeline's schedule. Gradients that are reduced in the background
// keep their buffers until the end of the step.
std::pair<Count, Count> peaks_by_stage(const Plan& plan, int rank, const RankUnits& units) {
  const bool in_background = plan.options.overlap && plan.length(Axis::dp) > 1;
  Buffers values, gradients;
  std::vector<bool> has_gradients(units.all.size());
  for (const Action& action : own_actions(plan, rank)) {
    const RankUnits::Stage& stage = units.stage(action.stage);
    for (std::size_t u = stage.first; u < stage.end(); ++u) {
      const Count count = units.all[u].count;
      if (action.pass == Pass::unshard) values.take(count);
      if (action.pass == Pass::reshard) values.give(count);
      if ((action.pass == Pass::backward || action.pass == Pass::weight_gradient) &&
          !has_gradients[u]) {
        gradients.take(count);
        has_gradients[u] = true;
      }
      if (action.pass == Pass::reduce_gradients && !in_background && !units.all[u].tied_copy)
        gradients.give(count);
    }
  }
  return {values.peak(), gradients.peak()};
}

}  // namespace

ShardedElements sharded_elements(const Plan& plan, int rank, const Sharding& sharding,
                                 const RankUnits& units) {
  ShardedElements elements;
  Count whole = 0;
  for (const UnitParameters& unit : units.all) {
    whole += unit.count;
    elements.shards += Parts(unit.count, plan.shards())[plan.shard(rank)];
  }
  const auto [gathered, unreduced] =
      sharding.by_stage ? peaks_by_stage(plan, rank, units) : peaks_by_order(plan, sharding, units);
  elements.parameters = sharding.shards_parameters() ? elements.shards + gathered : whole;
  elements.gradients = sharding.shards_gradients() ? elements.shards + unreduced : whole;
  return elements;
}

}  // namespace lockstep
