#include "parallel/sharded/sharding.h"

#include <algorithm>

#include "parallel/plan/algorithms.h"
#include "parallel/sharded/algorithms.h"

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

std::optional<Sharding> sharding_of(const Plan& plan, ParameterSet set) {
  const TrainOptions& o = plan.options;
  const int stage = plan.zero_stage();
  if (stage == 0 || (!is_trained(set) && stage < 3)) return {};
  Sharding sharding{.stage = stage,
                    .trains = is_trained(set),
                    .reduces_every_micro_batch = o.accumulation == "sync",
                    .steps_in_backward = o.optimizer_in_backward,
                    .all_reduces_gradients = plan.all_reduces_gradients(),
                    .by_stage = !alternates(plan.schedule),
                    .per_parameter = stage == 3 && o.sharding == "per-parameter",
                    .order = {.gathers = stage == 3,
                              .reshard_after_forward = o.reshard_after_forward != "no",
                              .forward_prefetch = o.forward_prefetch,
                              .prefetch = prefetch_from_name(o.prefetch),
                              .prefetch_last_block = o.prefetch_last_block,
                              .most_gathered = o.limit_all_gathers}};
  if (stage == 3 && !sharding.by_stage) sharding.group_ranks = plan.group_ranks();
  if (set == ParameterSet::experts) sharding.group_ranks /= plan.expert_ranks();
  sharding.order.keeps_group_shards = sharding.group_ranks > 0;
  UnitAlgorithms& named = sharding.algorithms;
  named.gather = named.gather_in_group = algorithm_of(plan, Operation::all_gather);
  named.reduce = algorithm_of(plan, sharding.reduction());
  if (o.replicas > 1) named.between = algorithm_of(plan, Operation::all_reduce);
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

RankUnits sharded_units(const RankModel& model, const Sharding& sharding, ParameterSet set,
                        const std::vector<std::string>& chosen) {
  const bool has_ends = set == model.base_set();
  RankUnits units{
      .replicas = model.replicas[set], .dtype = model.of(set).dtype(), .all = {}, .stages = {}};
  const EmbeddingCopies copies = model.embedding_copies();
  for (const auto& [number, stage] : model.stages) {
    std::vector<Unit> of_stage = stage.units();
    std::erase_if(of_stage, [&](const Unit& unit) { return unit.set != set; });
    StageShape shape{.blocks = static_cast<int>(of_stage.size()),
                     .has_first_end = has_ends && stage.is_first(),
                     .has_last_end = has_ends && stage.is_last()};
    shape.blocks -= shape.has_first_end + shape.has_last_end;
    units.stages.push_back({.number = number, .shape = shape, .first = units.all.size()});
    units.all.resize(units.stages.back().end());
    int block = root_unit;
    for (std::size_t place = 0; place < of_stage.size(); ++place) {
      const bool is_end = (shape.has_first_end && place == 0) ||
                          (shape.has_last_end && place + 1 == of_stage.size());
      UnitParameters& unit = units.all[units.stages.back().place(is_end ? root_unit : ++block)];
      unit.per_parameter = sharding.per_parameter;
      unit.algorithms = sharding.algorithms;
      for (int i = of_stage[place].first; i <= of_stage[place].last; ++i) {
        const Parameter& parameter = model.of(set).list()[static_cast<std::size_t>(i)];
        const Count rows = parameter.shape.front();
        unit.parameters.push_back(i);
        unit.extents.push_back({rows, parameter.count / rows});
        unit.count += parameter.count;
        if (has_ends && copies.contain(i)) unit.tied_copy = i;
      }
    }
  }
  if (!chosen.empty()) take_algorithms(units, chosen);
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

std::vector<UnitExchange> exchanges_of_step(const Plan& plan, int rank, const Sharding& sharding,
                                            const RankUnits& units) {
  using enum UnitExchange::Kind;
  std::vector<UnitExchange> all;
  if (sharding.by_stage) {
    for (const Action& action :
         plan.schedule.by_rank[static_cast<std::size_t>(plan.place(rank, Axis::pp))])
      if (action.pass == Pass::unshard)
        for (std::size_t u = units.stage(action.stage).first; u < units.stage(action.stage).end();
             ++u)
          all.push_back({gather, u});
    for (std::size_t u = 0; sharding.trains && u < units.all.size(); ++u)
      all.push_back({reduce, u});
    return all;
  }
  for (const UnitEvent& event : step_order(plan, sharding, units)) {
    const std::size_t unit = units.stages.front().place(event.unit);
    if (event.kind == UnitEvent::Kind::gather)
      all.push_back({event.in_group ? gather_in_group : gather, unit});
    if (event.kind == UnitEvent::Kind::reduce) all.push_back({reduce, unit});
  }
  return all;
}

std::vector<int> gathers_of_units(const Plan& plan, int rank, const Sharding& sharding,
                                  const RankUnits& units) {
  std::vector<int> gathers(units.all.size());
  for (const UnitExchange& exchange : exchanges_of_step(plan, rank, sharding, units))
    if (exchange.kind == UnitExchange::Kind::gather) ++gathers[exchange.unit];
  return gathers;
}

}  // namespace lockstep
