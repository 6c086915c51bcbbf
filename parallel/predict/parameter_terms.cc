#include "parallel/predict/parameter_terms.h"

#include "parallel/checkpoint/copy.h"
#include "parallel/data/ddp.h"
#include "parallel/data/in_backward.h"
#include "parallel/data/local_steps.h"
#include "parallel/matrices/owners.h"
#include "parallel/rank/norm.h"
#include "parallel/sharded/offload.h"
#include "parallel/sharded/sharded_terms.h"

namespace lockstep {

ParameterTerms::ParameterTerms(const Plan& plan, int rank, const RankModel& model, ParameterSet set,
                               const Environment& environment)
    : plan_(plan),
      rank_(rank),
      set_(set),
      model_(model),
      parameters_(model.of(set)),
      replicas_(model.replicas[set]),
      environment_(environment),
      sharding_(sharding_of(plan, set)) {
  if (sharding_)
    units_ = sharded_units(model, *sharding_, set, environment.replicas[set].algorithms);
}

std::vector<Terms> ParameterTerms::all() const {
  if (are_frozen()) return frozen();
  std::vector<Range> stepped = {{0, parameters_.count()}};
  if (plan_.options.optimizer_in_backward) {
    stepped.clear();
    for (const Bucket& unit : unit_buckets(model_, set_))
      stepped.push_back({unit.offset, unit.count});
  }
  std::vector<Terms> all = {checkpoint_terms(plan_, replicas_, parameters_, stepped,
                                             sharding_ ? &units_ : nullptr,
                                             environment_.computes_on_host)};
  if (are_experts()) all.push_back(norm_of_experts());
  all.push_back(matrix_terms(plan_, rank_, parameters_, set_, environment_.computes_on_host));
  add_exchange(all);
  return all;
}

void ParameterTerms::add_exchange(std::vector<Terms>& all) const {
  const ReplicaFacts& facts = environment_.replicas[set_];
  // In the background both sets may be exchanged at once.
  const bool is_apart = are_experts() && !plan_.options.overlap;
  const Moment reduction = is_apart ? Moment::reduction_of_experts : Moment::reduction;
  const Moment norm = are_experts() ? Moment::norm_of_expert_shards : Moment::norm_of_shards;
  if (!sharding_) {
    all.push_back(plan_.options.local_steps
                      ? local_steps_terms(plan_, replicas_, parameters_, facts, reduction)
                  : plan_.options.optimizer_in_backward
                      ? in_backward_terms(plan_, model_, set_, facts, reduction)
                      : ddp_terms(plan_, replicas_, parameters_, facts, reduction));
    all.push_back(states());
    return;
  }
  all.push_back(sharded_exchange_terms(plan_, rank_, *sharding_, units_, facts, reduction, norm));
  all.push_back(sharded_state_terms(plan_, rank_, *sharding_, units_, parameters_));
  all.push_back(offload_terms(plan_, rank_, *sharding_, units_, environment_.computes_on_host));
}

std::vector<std::vector<Range>> ParameterTerms::summed_together() const {
  if (!plan_.options.optimizer_in_backward) return {{{0, parameters_.count()}}};
  std::vector<std::vector<Range>> together;
  if (sharding_)
    for (const UnitParameters& unit : units_.all)
      together.push_back(parameters_.ranges_of(unit.parameters));
  else
    for (const Bucket& unit : unit_buckets(model_, set_))
      together.push_back({{unit.offset, unit.count}});
  return together;
}

Count ParameterTerms::held(const std::vector<Range>& ranges) const {
  Count count = 0;
  if (!sharding_)
    for (const Range& range : ranges) count += range.count;
  else
    for (const OwnPart& part :
         own_parts(parameters_, units_, replicas_.shards(), replicas_.shard(), ranges))
      count += part.range.count;
  return count;
}

// Experts that ranks divide are added up before the ranks of a model are.
Terms ParameterTerms::norm_of_experts() const {
  Terms terms{.part = PlanPart::norm};
  const int ranks = plan_.expert_ranks(), place = plan_.expert_rank(rank_);
  terms.send(norm_label, norm_traffic(ranks, place), sizeof(double));
  terms.bytes_formula = terms.messages_formula = "norm of experts";
  terms.hold({.use = MemoryUse::communication,
              .bytes = norm_scratch_bytes(ranks, place),
              .moment = Moment::norm_of_experts});
  return terms;
}

// Values only; if they are sharded, also what gathers send.
std::vector<Terms> ParameterTerms::frozen() const {
  // In the background gradients of adapters may be reduced at the same time.
  const Moment gathers = plan_.options.overlap          ? Moment::reduction
                         : set_ == ParameterSet::packed ? Moment::gathers_of_packed
                                                        : Moment::gathers_of_frozen;
  if (sharding_)
    return {sharded_exchange_terms(plan_, rank_, *sharding_, units_, environment_.replicas[set_],
                                   gathers, Moment::norm_of_shards),
            sharded_state_terms(plan_, rank_, *sharding_, units_, parameters_)};
  Terms terms{.part = PlanPart::states};
  terms.hold(
      {.use = MemoryUse::parameters,
       .bytes = parameters_.count() * element_bytes(parameters_.dtype()),
       .formula = set_ == ParameterSet::packed ? "bytes of packed matrices" : "Psi_frozen * beta"});
  return {terms};
}

// If nothing is sharded.
Terms ParameterTerms::states() const {
  const Count count = parameters_.count();
  const DType dtype = plan_.options.dtype;
  const std::string psi = plan_.trains_adapters()                            ? "Psi_adapters"
                          : plan_.splits_model() || plan_.expert_ranks() > 1 ? "Psi_rank"
                                                                             : "Psi";
  const OptimizerSettings settings = optimizer_settings(plan_.options);
  Terms terms{.part = PlanPart::states};
  const Terms::Held values{.use = MemoryUse::parameters,
                           .bytes = count * element_bytes(dtype),
                           .formula = psi + " * beta"};
  Terms::Held gradients = values;
  gradients.use = MemoryUse::gradients;
  terms.hold(values);
  terms.hold(plan_.options.optimizer_in_backward ? gradients_in_backward(plan_, model_, set_)
                                                 : gradients);
  terms.hold({.use = MemoryUse::optimizer,
              .bytes = optimizer_bytes(settings, dtype, parameters_.list(), {0, count}),
              .formula = optimizer_formula(settings, dtype, psi)});
  if (plan_.options.local_steps) terms.hold(outer_states(plan_, parameters_, psi));
  return terms;
}

}  // namespace lockstep
