#include "parallel/sharded/algorithms.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/exchange/compressed_gather.h"
#include "parallel/exchange/compressed_scatter.h"
#include "parallel/plan/algorithms.h"
#include "parallel/rank/gradient_exchange.h"

namespace lockstep {
namespace {

// What ranks gather of a unit from all of them: its parameters, or bytes of codes.
struct GatheredElements {
  Count count = 0;
  DType dtype = DType::f32;
};
GatheredElements gathered_elements(const Plan& plan, DType dtype, const ShardLayout& layout) {
  if (plan.compresses_parameters() && layout.ranks() > 1)
    return {gathered_bytes(plan.options.gather, layout.chunks()), DType::u8};
  return {layout.exchanged(), dtype};
}

}  // namespace

void choose_algorithms(RankUnits& units, const Plan& plan, const UnitRanks& ranks) {
  const auto choose = [](std::string& name, Operation collective, Communicator& comm, Count count,
                         DType dtype) {
    name = usable_algorithm(find_operation(name_of(collective)).algorithms, collective, name, comm,
                            {.count = count, .dtype = dtype})
               .name;
  };
  const TrainOptions& o = plan.options;
  const Operation reduction =
      plan.all_reduces_gradients() ? Operation::all_reduce : Operation::reduce_scatter;
  for (UnitParameters& unit : units.all) {
    const ShardLayout layout = unit.layout(ranks.shards.size());
    const GatheredElements gathered = gathered_elements(plan, units.dtype, layout);
    choose(unit.algorithms.gather, Operation::all_gather, ranks.shards, gathered.count,
           gathered.dtype);
    choose(unit.algorithms.reduce, reduction, ranks.shards, layout.exchanged(), *o.reduce_dtype);
    if (ranks.group)
      choose(unit.algorithms.gather_in_group, Operation::all_gather, *ranks.group,
             unit.layout(ranks.group->size()).exchanged(), units.dtype);
    if (ranks.between.size() > 1)
      choose(unit.algorithms.between, Operation::all_reduce, ranks.between,
             layout.shard(ranks.shards.rank()), units.dtype);
  }
}

std::vector<std::string> listed_algorithms(const RankUnits& units) {
  std::vector<std::string> listed;
  for (const UnitParameters& unit : units.all) {
    const UnitAlgorithms& a = unit.algorithms;
    listed.insert(listed.end(), {a.gather, a.gather_in_group, a.reduce, a.between});
  }
  return listed;
}

void take_algorithms(RankUnits& units, const std::vector<std::string>& listed) {
  auto next = listed.begin();
  for (UnitParameters& unit : units.all) {
    UnitAlgorithms& a = unit.algorithms;
    for (std::string* name : {&a.gather, &a.gather_in_group, &a.reduce, &a.between})
      *name = *next++;
  }
}

std::optional<ShardedTraffic> sharded_traffic(const Plan& plan, int rank, const Sharding& sharding,
                                              const RankUnits& units, const ReplicaFacts& facts) {
  ShardedTraffic sum;
  bool is_known = true;
  const auto add = [&](Traffic& into, Operation collective, const std::string& name,
                       const Problem& problem, int place) {
    const AnyAlgorithm* const algorithm = closed_forms(collective, name);
    if (algorithm && algorithm->traffic)
      into += algorithm->traffic(problem, place);
    else
      is_known = false;
  };
  const Count element = element_bytes(units.dtype);
  const auto problem = [&](const UnitParameters& unit, int ranks, Count bytes) {
    return Problem{.ranks = ranks,
                   .count = unit.layout(ranks).exchanged(),
                   .element_bytes = bytes,
                   .ranks_per_node = facts.ranks_per_node};
  };
  const auto gather = [&](const UnitParameters& unit) {
    Problem all = problem(unit, units.replicas.shards(), element);
    const GatheredElements gathered =
        gathered_elements(plan, units.dtype, unit.layout(units.replicas.shards()));
    all.count = gathered.count, all.element_bytes = element_bytes(gathered.dtype);
    add(sum.parameters, Operation::all_gather, unit.algorithms.gather, all, units.replicas.shard());
  };
  for (const auto& [kind, number] : exchanges_of_step(plan, rank, sharding, units)) {
    const UnitParameters& unit = units.all[number];
    switch (kind) {
      case UnitExchange::Kind::gather:
        gather(unit);
        break;
      case UnitExchange::Kind::gather_in_group: {
        Traffic in_group;
        add(in_group, Operation::all_gather, unit.algorithms.gather_in_group,
            problem(unit, sharding.group_ranks, element),
            units.replicas.shard() % sharding.group_ranks);
        // Next to codes, as bytes.
        const Count each = plan.compresses_parameters() ? element : 1;
        in_group.sent_elements *= each, in_group.received_elements *= each;
        sum.parameters += in_group;
        break;
      }
      case UnitExchange::Kind::reduce:
        if (plan.compresses_gradients()) {
          sum.gradients += scatter_traffic(exchange_from_text(plan.options.exchange),
                                           unit.layout(units.replicas.shards()).chunks(),
                                           units.replicas.shard(), facts.ranks_per_node);
          break;
        }
        add(sum.gradients, sharding.reduction(), unit.algorithms.reduce,
            problem(unit, units.replicas.shards(), GradientExchange::element_bytes(plan)),
            units.replicas.shard());
        break;
    }
  }
  const int replicas = units.replicas.replicas, replica = units.replicas.replica();
  for (const UnitParameters& unit : units.all) {
    if (!sharding.shards_parameters()) gather(unit);
    if (replicas == 1 || !sharding.trains) continue;
    add(sum.between_replicas, Operation::all_reduce, unit.algorithms.between,
        {.ranks = replicas,
         .count = unit.layout(units.replicas.shards()).shard(units.replicas.shard()),
         .element_bytes = element,
         .ranks_per_node = facts.counterparts_per_node},
        replica);
  }
  if (!is_known) return {};
  return sum;
}

namespace {

std::string gradients_formula(const Plan& plan, const Sharding& sharding) {
  if (plan.compresses_gradients())
    return fmt::format("(P-1) * {}(Psi_unit/P) of each reduction",
                       exchange_from_text(plan.options.exchange).codec());
  if (sharding.all_reduces_gradients && sharding.algorithms.reduce != "ring")
    return fmt::format("all_reduce/{}, by unit", sharding.algorithms.reduce);
  const bool each = sharding.shards_gradients() && sharding.reduces_every_micro_batch &&
                    !sharding.by_stage && plan.options.micro_batches > 1;
  return fmt::format("{}{}(P-1)/P * {} * beta_g", each ? "K * " : "",
                     sharding.all_reduces_gradients ? "2" : "",
                     sharding.per_parameter ? "Psi_padded" : "Psi");
}

std::string parameters_formula(const Plan& plan, const Sharding& sharding) {
  if (!sharding.shards_parameters()) return "(P-1)/P * Psi * beta";
  const std::string psi = sharding.per_parameter ? "Psi_padded" : "Psi";
  if (sharding.by_stage) return fmt::format("(P-1)/P * ({} of each UNSHARD) * beta", psi);
  const std::string times = plan.options.micro_batches > 1 ? "K * " : "";
  if (plan.compresses_parameters())
    return fmt::format("(P-1) * {}(Psi_unit/P) of each gather{}", plan.options.gather,
                       sharding.group_ranks == 0
                           ? ""
                           : fmt::format(" + {0}(N-1)/N * ({1} - {1}_root) * beta", times, psi));
  if (sharding.group_ranks > 0)
    return fmt::format("{0}((P-1)/P * {1} + (N-1)/N * ({1} - {1}_root)) * beta", times, psi);
  return times + (sharding.order.reshard_after_forward
                      ? fmt::format("(P-1)/P * (2 {0} - {0}_root) * beta", psi)
                      : fmt::format("(P-1)/P * {} * beta", psi));
}

}  // namespace

ShardedFormulas sharded_formulas(const Plan& plan, const Sharding& sharding) {
  const UnitAlgorithms& a = sharding.algorithms;
  const bool all_rings = a.gather == "ring" && a.reduce == "ring" && a.between == "ring";
  if (plan.compresses_gradients() && exchange_from_text(plan.options.exchange).adds_by_node())
    return {gradients_formula(plan, sharding), parameters_formula(plan, sharding),
            fmt::format("(L-1) + (N-1) for each reduction, all_gather/{} for each unit", a.gather)};
  return {gradients_formula(plan, sharding), parameters_formula(plan, sharding),
          all_rings ? "(P-1) for each unit and exchange"
                    : fmt::format("{}/{} and all_gather/{}, by unit and exchange",
                                  name_of(sharding.reduction()), a.reduce, a.gather)};
}

Count sharded_scratch_bytes(const Plan& plan, const Sharding& sharding, const RankUnits& units) {
  const auto scratch = [](Operation collective, const std::string& name, int ranks, Count count,
                          int place) {
    const AnyAlgorithm* const algorithm = closed_forms(collective, name);
    if (!algorithm || !algorithm->scratch) return Count{0};
    return algorithm->scratch({.ranks = ranks, .count = count}, place);
  };
  const int shards = units.replicas.shards(), shard = units.replicas.shard(),
            group = sharding.group_ranks;
  const int replicas = units.replicas.replicas, replica = units.replicas.replica();
  const Count element = element_bytes(units.dtype);
  Count of_shards = 0, between = 0;
  for (const UnitParameters& unit : units.all) {
    const UnitAlgorithms& a = unit.algorithms;
    const ShardLayout layout = unit.layout(shards);
    const GatheredElements gathered = gathered_elements(plan, units.dtype, layout);
    of_shards =
        std::max({of_shards,
                  scratch(Operation::all_gather, a.gather, shards, gathered.count, shard) *
                      element_bytes(gathered.dtype),
                  (sharding.trains && !plan.compresses_gradients()) *
                      scratch(sharding.reduction(), a.reduce, shards, layout.exchanged(), shard) *
                      GradientExchange::element_bytes(plan)});
    if (group > 0)
      of_shards = std::max(of_shards, scratch(Operation::all_gather, a.gather_in_group, group,
                                              unit.layout(group).exchanged(), shard % group) *
                                          element);
    if (replicas > 1 && sharding.trains)
      between = std::max(between, scratch(Operation::all_reduce, a.between, replicas,
                                          layout.shard(shard), replica) *
                                      element);
  }
  // Replicas have a stream of their own.
  return plan.options.overlap ? of_shards + between : std::max(of_shards, between);
}

}  // namespace lockstep
