#include "parallel/rank/rank_model.h"

namespace lockstep {

RankModel::RankModel(const Plan& plan, int rank, TensorRanks& tensor, ContextRanks& context,
                     Backend& backend, Ledger& ledger)
    : parameters(plan.options.dtype, ledger, plan.rank_place(rank)) {
  const TensorLayers split_layers(tensor);
  const LayerFactory& layers =
      plan.length(Axis::tp) > 1 ? static_cast<const LayerFactory&>(split_layers) : whole_layers();
  const ContextLayers context_layers(layers, context);
  const LayerFactory& factory =
      plan.length(Axis::cp) > 1 ? static_cast<const LayerFactory&>(context_layers) : layers;
  const std::vector<int> rank_of_stage = plan.schedule.rank_of_stage();
  for (int s = 0; s < plan.schedule.stages; ++s)
    if (rank_of_stage[static_cast<std::size_t>(s)] == plan.place(rank, Axis::pp))
      stages.try_emplace(s, parameters, plan.model,
                         layers_of_stage(plan.model.layers, plan.schedule.stages, s), backend,
                         ledger, plan.stage_options(), factory);
  const auto [first, last] = plan.ends_of_pipeline();
  if (first == last) return;
  const EmbeddingCopies copies = embedding_copies();
  for (const auto& copy : {copies.tokens, copies.head})
    if (copy) parameters.place_along(Axis::pp, *copy, {Placed::partial, 2});
}

EmbeddingCopies RankModel::embedding_copies() const {
  EmbeddingCopies copies;
  for (const auto& [number, stage] : stages) {
    if (stage.is_first() && stage.is_last()) return {};
    if (stage.is_first()) copies.tokens = stage.tokens();
    if (stage.is_last()) copies.head = stage.head();
  }
  return copies;
}

RankOutline::RankOutline(const Plan& plan, int rank)
    : tensor_(plan.split(rank), false, none_),
      context_(plan.context(rank), none_),
      model_(plan, rank, tensor_, context_, host_backend(), none_) {}

}  // namespace lockstep
