#include "parallel/sharded/sharding.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {
namespace {

Prefetch prefetch_from_name(const std::string& name) {
  if (name == "none") return Prefetch::none;
  return name == "backward-pre" ? Prefetch::backward_pre : Prefetch::backward_post;
}

// Whether a rank takes its only stage forward and then immediately back, micro-batch by
// micro-batch.
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
                    .per_parameter = stage == 3 && o.sharding == "per-parameter",
                    .order = {.gathers = stage == 3,
                              .reshard_after_forward = o.reshard_after_forward != "no",
                              .forward_prefetch = o.forward_prefetch,
                              .prefetch = prefetch_from_name(o.prefetch),
                              .prefetch_last_block = o.prefetch_last_block,
                              .most_gathered = o.limit_all_gathers}};
  if (stage == 3 && !sharding.by_stage) sharding.group_ranks = plan.group_ranks();
  sharding.order.keeps_group_shards = sharding.group_ranks > 0;
  return sharding;
}

const RankUnits::Stage& RankUnits::stage(int number) const {
  return *std::ranges::find(stages, number, &Stage::number);
}

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

RankUnits sharded_units(const RankModel& model, const Sharding& sharding) {
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
      unit.per_parameter = sharding.per_parameter;
      for (int i = of_stage[place].first; i <= of_stage[place].last; ++i) {
        const Parameter& parameter = model.parameters.list()[static_cast<std::size_t>(i)];
        const Count rows = parameter.shape.front();
        unit.parameters.push_back(i);
        unit.extents.push_back({rows, parameter.count / rows});
        unit.count += parameter.count;
        if (copies.contain(i)) unit.tied_copy = i;
      }
    }
  }
  return units;
}

std::vector<OwnPart> own_parts(const Parameters& parameters, const RankUnits& units, int ranks,
                               int rank, const std::vector<Range>& ranges) {
  std::vector<OwnPart> parts;
  for (std::size_t u = 0; u < units.all.size(); ++u)
    for (const ShardLayout::Piece& piece : units.all[u].layout(ranks).pieces(rank)) {
      const auto number = static_cast<std::size_t>(units.all[u].parameters[piece.parameter]);
      const Count first = parameters.list()[number].offset + piece.range.first;
      for (const Range& range : ranges) {
        const Count begin = std::max(range.first, first),
                    end = std::min(range.first + range.count, first + piece.range.count);
        if (begin < end)
          parts.push_back({.unit = u, .range = {begin - first + piece.in_shard, end - begin}});
      }
    }
  return parts;
}

namespace {

// Calls gather(unit, in_group) and reduce(unit) for a step's collectives among the ranks that hold the
// shards, in order.
template <typename Gather, typename Reduce>
void for_each_collective(const Plan& plan, int rank, const Sharding& sharding,
                         const RankUnits& units, Gather gather, Reduce reduce) {
  if (sharding.by_stage) {
    for (const Action& action :
         plan.schedule.by_rank[static_cast<std::size_t>(plan.place(rank, Axis::pp))])
      if (action.pass == Pass::unshard)
        for (std::size_t u = units.stage(action.stage).first; u < units.stage(action.stage).end();
             ++u)
          gather(u, false);
    for (std::size_t u = 0; u < units.all.size(); ++u) reduce(u);
    return;
  }
  for (const UnitEvent& event : step_order(plan, sharding, units)) {
    if (event.kind == UnitEvent::Kind::gather)
      gather(units.stages.front().place(event.unit), event.in_group);
    if (event.kind == UnitEvent::Kind::reduce) reduce(units.stages.front().place(event.unit));
  }
}

}  // namespace

ShardedTraffic sharded_traffic(const Plan& plan, int rank, const Sharding& sharding,
                               const RankUnits& units) {
  ShardedTraffic sum;
  const auto ring = [&](const auto& algorithm, std::size_t unit, int ranks) {
    return algorithm.traffic({.ranks = ranks, .count = units.all[unit].layout(ranks).exchanged()},
                             plan.shard(rank) % ranks);
  };
  const auto gather = [&](std::size_t unit, bool in_group = false) {
    sum.parameters +=
        ring(all_gather_ring(), unit, in_group ? sharding.group_ranks : plan.shards());
  };
  const auto reduce = [&](std::size_t unit) {
    sum.gradients += sharding.all_reduces_gradients
                         ? ring(all_reduce_ring(), unit, plan.shards())
                         : ring(reduce_scatter_ring(), unit, plan.shards());
  };
  for_each_collective(plan, rank, sharding, units, gather, reduce);
  const int replicas = plan.options.replicas, replica = plan.copy(rank) / plan.shards();
  for (std::size_t u = 0; u < units.all.size(); ++u) {
    if (!sharding.shards_parameters()) gather(u);
    if (replicas == 1) continue;
    const Count own = units.all[u].layout(plan.shards()).shard(plan.shard(rank));
    sum.between_replicas += all_reduce_ring().traffic({.ranks = replicas, .count = own}, replica);
  }
  return sum;
}

std::vector<int> gathers_of_units(const Plan& plan, int rank, const Sharding& sharding,
                                  const RankUnits& units) {
  std::vector<int> gathers(units.all.size());
  for_each_collective(
      plan, rank, sharding, units,
      [&](std::size_t unit, bool in_group) { gathers[unit] += in_group ? 0 : 1; },
      [](std::size_t) {});
  return gathers;
}

std::pair<std::string, std::string> sharded_formulas(const Plan& plan, const Sharding& sharding) {
  const int batches = sharding.by_stage ? 1 : plan.options.micro_batches;
  const bool each = sharding.shards_gradients() && sharding.reduces_every_micro_batch;
  const std::string times = batches > 1 ? "K * " : "";
  const std::string psi = sharding.per_parameter ? "Psi_padded" : "Psi";
  const std::string gradients = (each ? times : "") +
                                (sharding.all_reduces_gradients ? "2(P-1)/P" : "(P-1)/P") + " * " +
                                psi + " * beta_g";
  if (!sharding.shards_parameters()) return {gradients, "(P-1)/P * Psi * beta"};
  if (sharding.by_stage)
    return {gradients, fmt::format("(P-1)/P * ({} of each UNSHARD) * beta", psi)};
  if (sharding.group_ranks > 0)
    return {gradients,
            fmt::format("{0}((P-1)/P * {1} + (N-1)/N * ({1} - {1}_root)) * beta", times, psi)};
  return {gradients, times + (sharding.order.reshard_after_forward
                                  ? fmt::format("(P-1)/P * (2 {0} - {0}_root) * beta", psi)
                                  : fmt::format("(P-1)/P * {} * beta", psi))};
}

}  // namespace lockstep
