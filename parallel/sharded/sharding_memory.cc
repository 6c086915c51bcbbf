// The memory of sharded units: a replay of the buffers that they take and give back in a step.
#include <algorithm>

#include "parallel/exchange/compressed_gather.h"
#include "parallel/exchange/compressed_scatter.h"
#include "parallel/rank/buffer_pool.h"
#include "parallel/rank/gradient_exchange.h"
#include "parallel/sharded/sharding.h"

namespace lockstep {
namespace {

// The buffers that a rank's units take and give back, event by event.
class UnitBuffers {
 public:
  UnitBuffers(const Plan& plan, const Sharding& sharding, const RankUnits& units)
      : per_parameter_(sharding.per_parameter),
        reduces_in_background_(plan.options.overlap && units.replicas.copies > 1) {
    for (const UnitParameters& unit : units.all) {
      UnitSizes& sizes = units_.emplace_back();
      sizes.whole = unit.count;
      sizes.exchanged = unit.layout(units.replicas.shards()).exchanged();
      if (sharding.group_ranks == 0) continue;
      const ShardLayout group = unit.layout(sharding.group_ranks);
      sizes.exchanged_in_group = group.exchanged();
      sizes.group_shard = group.shard(units.replicas.shard() % sharding.group_ranks);
    }
  }

  void gather(std::size_t number, bool in_group = false) {
    UnitSizes& unit = units_[number];
    unit.gathering = in_group ? unit.exchanged_in_group : unit.exchanged;
    unit.from_group = in_group;
    values_.take(unit.gathering);
  }
  // Before the first use, parameters that are split one by one are copied to their places.
  void use(std::size_t number) {
    UnitSizes& unit = units_[number];
    if (unit.gathering == 0) return;
    if (per_parameter_) {
      values_.take(unit.whole);
      values_.give(unit.gathering);
    }
    if (unit.from_group) values_.give(unit.group_shard);
    unit.gathering = 0;
  }
  void free(std::size_t number, bool in_group = false) {
    use(number);
    if (in_group) values_.take(units_[number].group_shard);
    values_.give(units_[number].whole);
  }
  void add_gradients(std::size_t number) {
    if (!std::exchange(units_[number].has_gradients, true)) gradients_.take(units_[number].whole);
  }
  // Returns the elements of the buffer that reduces the gradients, 0 if it is given back already.
  Count reduce(std::size_t number) {
    UnitSizes& unit = units_[number];
    if (per_parameter_) {
      gradients_.take(unit.exchanged);
      gradients_.give(unit.whole);
    }
    unit.has_gradients = false;
    if (reduces_in_background_) return unit.exchanged;
    gradients_.give(unit.exchanged);
    return 0;
  }
  void give_reduced(Count count) {
    if (count > 0) gradients_.give(count);
  }

  Count most_values() const { return values_.elements(); }
  Count most_gradients() const { return gradients_.elements(); }

 private:
  struct UnitSizes {
    Count whole = 0, exchanged = 0;  // the latter with padding
    Count exchanged_in_group = 0, group_shard = 0;
    Count gathering = 0;  // elements of the buffer that is being gathered into; 0: none
    bool from_group = false, has_gradients = false;
  };

  bool per_parameter_, reduces_in_background_;
  std::vector<UnitSizes> units_;
  PoolPeak values_, gradients_;
};

// Follows the order micro-batch by micro-batch.
void follow_order(const Plan& plan, const Sharding& sharding, const RankUnits& units,
                  UnitBuffers& buffers) {
  Count reducing = 0;
  for (const UnitEvent& event : step_order(plan, sharding, units)) {
    const std::size_t unit = units.stages.front().place(event.unit);
    switch (event.kind) {
      case UnitEvent::Kind::gather:
        buffers.gather(unit, event.in_group);
        break;
      case UnitEvent::Kind::free:
        buffers.free(unit, event.in_group);
        break;
      case UnitEvent::Kind::use:
        buffers.use(unit);
        if (event.use == UnitUse::backward) buffers.add_gradients(unit);
        break;
      case UnitEvent::Kind::reduce:
        buffers.give_reduced(std::exchange(reducing, 0));
        reducing = buffers.reduce(unit);
        break;
    }
  }
}

// Returns the units that an action uses, in order.
std::vector<std::size_t> used_units(const RankUnits::Stage& stage, Pass pass) {
  if (!is_compute(pass)) return {};
  std::vector<std::size_t> used;
  const auto end = [&](bool exists) {
    if (exists) used.push_back(stage.place(root_unit));
  };
  end(stage.shape.has_first_end && pass != Pass::input_gradient);
  for (int block = 1; block <= stage.shape.blocks; ++block) used.push_back(stage.place(block));
  end(stage.shape.has_last_end);
  if (pass != Pass::forward) std::ranges::reverse(used);
  return used;
}

// Follows the actions of a pipeline's schedule. Gradients that are reduced in the background keep
// their buffers until the end of the step. Those of tied copies are reduced after all actions, the
// head's first.
void follow_actions(const Plan& plan, int rank, const RankUnits& units, UnitBuffers& buffers) {
  for (const Action& action :
       plan.schedule.by_rank[static_cast<std::size_t>(plan.place(rank, Axis::pp))]) {
    const RankUnits::Stage& stage = units.stage(action.stage);
    for (const std::size_t unit : used_units(stage, action.pass)) {
      buffers.use(unit);
      if (action.pass == Pass::backward || action.pass == Pass::weight_gradient)
        buffers.add_gradients(unit);
    }
    for (std::size_t u = stage.first; u < stage.end(); ++u) {
      if (action.pass == Pass::unshard) buffers.gather(u);
      if (action.pass == Pass::reshard) buffers.free(u);
      if (action.pass == Pass::reduce_gradients && !units.all[u].tied_copy) buffers.reduce(u);
    }
  }
  for (std::size_t u = units.all.size(); u-- > 0;)
    if (units.all[u].tied_copy) buffers.reduce(u);
}

}  // namespace

ShardedElements sharded_elements(const Plan& plan, int rank, const Sharding& sharding,
                                 const RankUnits& units) {
  ShardedElements elements;
  Count whole = 0;
  for (const UnitParameters& unit : units.all) {
    whole += unit.count;
    elements.shards += unit.layout(units.replicas.shards()).shard(units.replicas.shard());
  }
  UnitBuffers buffers(plan, sharding, units);
  if (sharding.by_stage)
    follow_actions(plan, rank, units, buffers);
  else
    follow_order(plan, sharding, units, buffers);
  elements.parameters =
      sharding.shards_parameters() ? elements.shards + buffers.most_values() : whole;
  elements.gradients = !sharding.trains              ? 0
                       : sharding.steps_in_backward  ? buffers.most_gradients()
                       : sharding.shards_gradients() ? elements.shards + buffers.most_gradients()
                                                     : whole;
  return elements;
}

namespace {

// The unit that exchanges the most.
const UnitParameters& largest_of(const RankUnits& units) {
  return *std::ranges::max_element(units.all, {}, [&](const UnitParameters& unit) {
    return unit.layout(units.replicas.shards()).exchanged();
  });
}

}  // namespace

Count sharded_communication_bytes(const Plan& plan, const RankUnits& units,
                                  const ReplicaFacts& facts) {
  if (units.all.empty()) return 0;
  const ShardLayout largest = largest_of(units).layout(units.replicas.shards());
  if (!plan.compresses_gradients())
    return GradientExchange::memory_bytes(plan, units.replicas.copies, largest.exchanged());
  return units.replicas.shards() == 1
             ? 0
             : scatter_memory_bytes(exchange_from_text(plan.options.exchange), plan.options.dtype,
                                    largest.chunks(), units.replicas.shard(), facts.ranks_per_node);
}

Count sharded_gather_bytes(const Plan& plan, const RankUnits& units) {
  if (units.all.empty() || units.replicas.shards() == 1 || !plan.compresses_parameters()) return 0;
  return gather_memory_bytes(plan.options.gather, plan.options.dtype,
                             largest_of(units).layout(units.replicas.shards()).chunks());
}

}  // namespace lockstep
