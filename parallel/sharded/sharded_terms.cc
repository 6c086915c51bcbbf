#include "parallel/sharded/sharded_terms.h"

#include "models/optimizers/optimizers.h"
#include "parallel/rank/gradient_exchange.h"
#include "parallel/rank/norm.h"
#include "parallel/sharded/algorithms.h"
#include "parallel/sharded/offload.h"

namespace lockstep {
Terms sharded_exchange_terms(const Plan& plan, int rank, const Sharding& sharding,
                             const RankUnits& units, const ReplicaFacts& facts, Moment reduction,
                             Moment norm) {
  Terms terms{.part = PlanPart::gradients};
  if (units.replicas.copies == 1) return terms;
  const Count element = element_bytes(units.dtype),
              element_of_parameters = plan.compresses_parameters() ? 1 : element;
  if (sharding.trains) {
    terms.send(norm_label, norm_traffic(units.replicas.shards(), units.replicas.shard()),
               sizeof(double));
    terms.hold({.use = MemoryUse::communication,
                .bytes = sharded_communication_bytes(plan, units, facts)});
    terms.hold({.use = MemoryUse::communication,
                .bytes = norm_scratch_bytes(units.replicas.shards(), units.replicas.shard()),
                .moment = norm});
  }
  const Count scratch = sharded_scratch_bytes(plan, sharding, units);
  terms.hold({.use = MemoryUse::communication, .bytes = sharded_gather_bytes(plan, units)});
  // Units are also gathered before the rest of a first step has its memory. A resumed run may have no
  // other.
  const bool runs_again = plan.options.steps > 1 && plan.options.resume.empty();
  terms.hold({.use = MemoryUse::communication,
              .bytes = scratch,
              .exact = scratch == 0 || (!plan.options.overlap && runs_again),
              .moment = reduction});
  const auto traffic = sharded_traffic(plan, rank, sharding, units, facts);
  terms.has_unknown_traffic = !traffic;
  if (!traffic) return terms;
  const auto [gradients, parameters, messages] = sharded_formulas(plan, sharding);
  if (!sharding.trains) {
    terms.send("parameters", traffic->parameters, element_of_parameters, parameters);
    terms.bytes_formula =
        parameters + (units.dtype == DType::u8 ? " of packed matrices" : " of frozen parameters");
    terms.messages_formula = messages;
    return terms;
  }
  terms.send("gradients", traffic->gradients,
             plan.compresses_gradients() ? 1 : GradientExchange::element_bytes(plan), gradients);
  terms.send("parameters", traffic->parameters, element_of_parameters, parameters);
  terms.send("gradients of replicas", traffic->between_replicas, element);
  terms.bytes_formula = gradients + " + " + parameters + " + norm";
  terms.messages_formula = messages + " + norm";
  return terms;
}

namespace {

// Bytes of the optimizer's states of a rank's shards.
Count shard_state_bytes(const OptimizerSettings& settings, DType dtype, const RankUnits& units,
                        const Parameters& parameters) {
  Count bytes = 0;
  for (const UnitParameters& unit : units.all)
    for (const ShardLayout::Piece& piece :
         unit.layout(units.replicas.shards()).pieces(units.replicas.shard())) {
      const auto number = static_cast<std::size_t>(unit.parameters[piece.parameter]);
      bytes += piece.range.count * optimizer_bytes(settings, dtype, parameters.list()[number]);
    }
  return bytes;
}

}  // namespace

Terms sharded_state_terms(const Plan& plan, int rank, const Sharding& sharding,
                          const RankUnits& units, const Parameters& parameters) {
  Terms terms{.part = PlanPart::states};
  const DType dtype = units.dtype;
  const ShardedElements elements = sharded_elements(plan, rank, sharding, units);
  const auto buffers = [](bool is_sharded, const char* which) {
    return is_sharded ? std::string("(Psi/P + ") + which + ") * beta" : "Psi * beta";
  };
  if (!offloads_parameters(plan))
    terms.hold({.use = MemoryUse::parameters,
                .bytes = elements.parameters * element_bytes(dtype),
                .formula = buffers(sharding.shards_parameters(),
                                   sharding.group_ranks > 0 ? "(Psi - Psi_root)/N + gathered units"
                                                            : "gathered units")});
  if (!sharding.trains) return terms;
  terms.hold({.use = MemoryUse::gradients,
              .bytes = elements.gradients * element_bytes(dtype),
              .formula = sharding.steps_in_backward
                             ? "unreduced units * beta"
                             : buffers(sharding.shards_gradients(), "unreduced units")});
  const OptimizerSettings settings = optimizer_settings(plan.options);
  if (!offloads_states(plan))
    terms.hold({.use = MemoryUse::optimizer,
                .bytes = shard_state_bytes(settings, dtype, units, parameters),
                .formula = optimizer_formula(settings, dtype, "Psi/P")});
  return terms;
}

}  // namespace lockstep
