#include "parallel/rank/rank_model.h"

#include "parallel/expert/assumed_rows.h"

namespace lockstep {

LayerRanks::LayerRanks(const Plan& plan, Communicator& world, Ledger& ledger)
    : rank(world.rank()),
      tensor_group(plan.mesh.communicator(world, {Axis::tp})),
      context_group(plan.mesh.communicator(world, {Axis::cp})),
      expert_group(world.subgroup(plan.expert_group(rank))),
      tensor(*tensor_group, plan.split(rank), plan.options.tensor_overlap, ledger),
      context(*context_group, plan.context(rank), ledger),
      sharers(world.subgroup(plan.sequence_group_of_routers(rank))),
      turns(plan.options.overlap_pairs ? std::make_unique<Turns>(world) : nullptr),
      experts(*expert_group, *tensor_group, plan.split(rank).experts, plan.model.experts,
              plan.options.token_dispatcher,
              {.shared_experts = plan.options.shared_expert_overlap, .turns = turns.get()},
              ledger) {}

LayerRanks::LayerRanks(const Plan& plan, int of, Ledger& ledger)
    : rank(of),
      tensor(plan.split(of), plan.options.tensor_overlap, ledger),
      context(plan.context(of), ledger),
      experts(plan.split(of).experts, plan.model.experts, plan.options.token_dispatcher, ledger) {}

namespace {

BySet<ReplicaGroup> replicas_of(const Plan& plan, int rank) {
  return {plan.replicas(rank, ParameterSet::dense), plan.replicas(rank, ParameterSet::experts),
          plan.replicas(rank, ParameterSet::frozen), plan.replicas(rank, ParameterSet::packed)};
}

std::optional<Adapters> adapters_of(const Plan& plan, int rank, Parameters& parameters,
                                    Ledger& ledger) {
  if (!plan.trains_adapters()) return {};
  return std::optional<Adapters>(std::in_place, parameters, lora_config(plan.options), ledger,
                                 plan.options.seed, plan.model.head_size(), plan.rank_place(rank));
}

}  // namespace

RankModel::RankModel(const Plan& plan, Communicator& world, Backend& backend, Ledger& ledger)
    : ranks(plan, world, ledger),
      replicas(replicas_of(plan, ranks.rank)),
      parameters(plan.options.dtype, ledger, plan.rank_place(ranks.rank)),
      experts(plan.options.dtype, ledger, plan.rank_place(ranks.rank, ParameterSet::experts)),
      adapters(adapters_of(plan, ranks.rank, parameters, ledger)),
      frozen(plan.options.dtype, ledger, plan.rank_place(ranks.rank),
             adapters ? &*adapters : nullptr) {
  add_stages(plan, backend, ledger);
}

RankModel::RankModel(const Plan& plan, int rank, Backend& backend, Ledger& ledger)
    : ranks(plan, rank, ledger),
      replicas(replicas_of(plan, rank)),
      parameters(plan.options.dtype, ledger, plan.rank_place(rank)),
      experts(plan.options.dtype, ledger, plan.rank_place(rank, ParameterSet::experts)),
      adapters(adapters_of(plan, rank, parameters, ledger)),
      frozen(plan.options.dtype, ledger, plan.rank_place(rank), adapters ? &*adapters : nullptr) {
  add_stages(plan, backend, ledger);
}

void RankModel::add_stages(const Plan& plan, Backend& backend, Ledger& ledger) {
  const TensorLayers split_layers(ranks.tensor);
  const LayerFactory& layers =
      plan.length(Axis::tp) > 1 ? static_cast<const LayerFactory&>(split_layers) : whole_layers();
  const ContextLayers context_layers(layers, ranks.context);
  const LayerFactory& whole_experts =
      plan.length(Axis::cp) > 1 ? static_cast<const LayerFactory&>(context_layers) : layers;
  const ExpertLayers expert_layers(whole_experts, plan.expert_ranks() > 1 ? experts : parameters,
                                   ranks.experts);
  const LayerFactory& factory = ranks.experts.split().is_divided()
                                    ? static_cast<const LayerFactory&>(expert_layers)
                                    : whole_experts;
  const std::vector<int> rank_of_stage = plan.schedule.rank_of_stage();
  for (int s = 0; s < plan.schedule.stages; ++s)
    if (rank_of_stage[static_cast<std::size_t>(s)] == plan.place(ranks.rank, Axis::pp))
      stages.try_emplace(s, of(base_set()), plan.model,
                         layers_of_stage(plan.model.layers, plan.schedule.stages, s), backend,
                         ledger, plan.stage_options(), factory);
  share_sequences(plan);
  if (plan.choices) assume_choices(plan);
  const auto [first, last] = plan.ends_of_pipeline();
  if (first == last) return;
  const EmbeddingCopies copies = embedding_copies();
  for (const auto& copy : {copies.tokens, copies.head})
    if (copy) parameters.place_along(Axis::pp, *copy, {Placed::partial, 2});
}

void RankModel::share_sequences(const Plan& plan) {
  const LayerSplit split = plan.split(ranks.rank);
  Router::Sharers sharers{
      .ranks = static_cast<int>(plan.sequence_group_of_routers(ranks.rank).size()),
      .add_up = [this](std::span<double> numbers) { ranks.sharers.add_up(numbers); }};
  if (split.by_sequence) sharers.row_ranks = split.ranks, sharers.row_rank = split.rank;
  for (const LayerRouter& layer : routers()) layer.router->share_sequences(sharers);
}

// For devices without data, and where the other ranks do not exist.
void RankModel::assume_choices(const Plan& plan) {
  const auto rows = std::make_shared<const AssumedRows>(plan, ranks.rank);
  for (const LayerRouter& layer : routers())
    layer.router->assume([rows](int of, Count tokens) { return rows->experts(of, tokens); });
  ranks.experts.assume(
      [rows](const ExpertGroup& group, Routing& routing) { rows->set_others(group, routing); });
}

std::vector<ParameterSet> RankModel::sets() const {
  std::vector<ParameterSet> sets = {ParameterSet::dense};
  if (adapters) sets.insert(sets.begin(), ParameterSet::frozen);
  if (adapters && adapters->count_packed() > 0) sets.insert(sets.begin(), ParameterSet::packed);
  if (!experts.list().empty()) sets.push_back(ParameterSet::experts);
  return sets;
}

EmbeddingCopies RankModel::embedding_copies() const {
  EmbeddingCopies copies;
  if (adapters) return copies;
  for (const auto& [number, stage] : stages) {
    if (stage.is_first() && stage.is_last()) return {};
    if (stage.is_first()) copies.tokens = stage.tokens();
    if (stage.is_last()) copies.head = stage.head();
  }
  return copies;
}

std::vector<LayerRouter> RankModel::routers() {
  std::vector<LayerRouter> routers;
  for (auto& [number, stage] : stages)
    for (const LayerRouter& layer : stage.routers()) routers.push_back(layer);
  return routers;
}

RoutingTotals RankModel::take_routing() {
  RoutingTotals all;
  for (auto& [number, stage] : stages) all.add(stage.take_routing());
  return all;
}

RoutingTotals RankModel::routing() const {
  RoutingTotals all;
  for (const auto& [number, stage] : stages) all.add(stage.routing());
  return all;
}

}  // namespace lockstep
