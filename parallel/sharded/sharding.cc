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

// The events of all micro-batches of a step.
std::vector<UnitEvent> step_order(const Plan& plan, const Sharding& sharding, std::size_t units) {
  std::vector<UnitEvent> all;
  const int blocks = static_cast<int>(units) - 1, batches = plan.options.micro_batches;
  for (int m = 0; m < batches; ++m)
    std::ranges::copy(training_order(blocks, sharding.order, sharding.reduces(m, batches)),
                      std::back_inserter(all));
  return all;
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

}  // namespace

std::optional<Sharding> sharding_of(const TrainOptions& o) {
  const bool is_fsdp = o.technique == "fsdp";
  if (!is_fsdp && (o.technique != "zero" || o.zero_stage == 0)) return {};
  Sharding sharding{
      .stage = is_fsdp ? 3 : o.zero_stage,
      .reduces_every_micro_batch = o.accumulation == "sync",
      .all_reduces_gradients = !is_fsdp && o.zero_stage < 3 && o.zero_volume == "all-reduce",
      .order = {.reshard_after_forward = o.reshard_after_forward == "yes",
                .forward_prefetch = o.forward_prefetch,
                .prefetch = prefetch_from_name(o.prefetch)}};
  sharding.order.gathers = sharding.shards_parameters();
  return sharding;
}

std::vector<UnitParameters> sharded_units(const RankModel& model) {
  std::vector<UnitParameters> units(1);
  for (const auto& [number, stage] : model.stages) {
    const std::vector<Unit> of_stage = stage.units();
    for (std::size_t place = 0; place < of_stage.size(); ++place) {
      const bool is_end =
          (stage.is_first() && place == 0) || (stage.is_last() && place + 1 == of_stage.size());
      UnitParameters& unit = is_end ? units.front() : units.emplace_back();
      for (int i = of_stage[place].first; i <= of_stage[place].last; ++i) {
        unit.parameters.push_back(i);
        unit.count += model.parameters.list()[static_cast<std::size_t>(i)].count;
      }
    }
  }
  return units;
}

ShardedTraffic sharded_traffic(const Plan& plan, int rank, const Sharding& sharding,
                               const std::vector<UnitParameters>& units) {
  const int replicas = plan.length(Axis::dp), place = plan.place(rank, Axis::dp);
  const auto ring = [&](auto algorithm, std::size_t unit) {
    return algorithm.traffic({.ranks = replicas, .count = units[unit].count}, place);
  };
  ShardedTraffic sum;
  for (const UnitEvent& event : step_order(plan, sharding, units.size())) {
    const auto unit = static_cast<std::size_t>(event.unit);
    if (event.kind == UnitEvent::Kind::gather) sum.parameters += ring(all_gather_ring(), unit);
    if (event.kind == UnitEvent::Kind::reduce)
      sum.gradients += sharding.all_reduces_gradients ? ring(all_reduce_ring(), unit)
                                                      : ring(reduce_scatter_ring(), unit);
  }
  for (std::size_t unit = 0; !sharding.shards_parameters() && unit < units.size(); ++unit)
    sum.parameters += ring(all_gather_ring(), unit);
  return sum;
}

std::pair<std::string, std::string> sharded_formulas(const Plan& plan, const Sharding& sharding) {
  const int batches = plan.options.micro_batches;
  const bool each = sharding.shards_gradients() && sharding.reduces_every_micro_batch;
  const std::string times = batches > 1 ? "K * " : "";
  const std::string gradients = (each ? times : "") +
                                (sharding.all_reduces_gradients ? "2(P-1)/P" : "(P-1)/P") +
                                " * Psi * beta_g";
  if (!sharding.shards_parameters()) return {gradients, "(P-1)/P * Psi * beta"};
  return {gradients, times + "(P-1)/P * " +
                         (sharding.order.reshard_after_forward ? "(2 Psi - Psi_root)" : "Psi") +
                         " * beta"};
}

Count sharded_communication_bytes(const Plan& plan, const std::vector<UnitParameters>& units) {
  const DType type = *plan.options.reduce_dtype;
  if (plan.length(Axis::dp) == 1 || type == plan.options.dtype) return 0;
  return std::ranges::max(units, {}, &UnitParameters::count).count * element_bytes(type);
}

ShardedElements sharded_elements(const Plan& plan, int rank, const Sharding& sharding,
                                 const std::vector<UnitParameters>& units) {
  ShardedElements elements;
  Buffers values, gradients;
  std::vector<bool> has_gradients(units.size());
  Count reducing = 0;  // elements of the buffer that is being reduced; 0: none
  const auto give_reduced = [&] {
    if (reducing > 0) gradients.give(std::exchange(reducing, 0));
  };
  for (const UnitEvent& event : step_order(plan, sharding, units.size())) {
    const auto unit = static_cast<std::size_t>(event.unit);
    const Count count = units[unit].count;
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
  Count whole = 0;
  for (const UnitParameters& unit : units) {
    whole += unit.count;
    elements.shards += Parts(unit.count, plan.length(Axis::dp))[plan.place(rank, Axis::dp)];
  }
  elements.parameters = sharding.shards_parameters() ? elements.shards + values.peak() : whole;
  elements.gradients = sharding.shards_gradients() ? elements.shards + gradients.peak() : whole;
  return elements;
}

}  // namespace lockstep
