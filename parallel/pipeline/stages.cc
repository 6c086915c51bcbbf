#include "parallel/pipeline/stages.h"

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {

PipelineRank part_of_rank(const Schedule& schedule, int rank, Parameters& parameters,
                          const GptConfig& config, Backend& backend, Ledger& ledger,
                          const ModelOptions& options, const LayerFactory& factory) {
  const Program program = as_simulated(schedule);
  PipelineRank part{.steps = program.by_rank[static_cast<std::size_t>(rank)],
                    .taken_sends = taken_sends(program, rank),
                    .rank_of_stage = schedule.rank_of_stage(),
                    .stages = {}};
  for (int s = 0; s < schedule.stages; ++s)
    if (part.rank_of_stage[static_cast<std::size_t>(s)] == rank)
      part.stages.try_emplace(s, parameters, config,
                              layers_of_stage(config.layers, schedule.stages, s), backend, ledger,
                              options, factory);
  return part;
}

TiedEmbedding::TiedEmbedding(Communicator& pipeline, const PipelineRank& part,
                             Parameters& parameters)
    : parameters_(parameters) {
  for (const auto& [_, stage] : part.stages) {
    if (stage.is_first()) tokens_ = stage.tokens();
    if (stage.is_last()) head_ = stage.head();
  }
  if (part.rank_of_stage.front() == part.rank_of_stage.back()) return;
  between_ = pipeline.split(tokens_ || head_ ? 0 : -1, pipeline.rank());
  if (between_) between_->set_label("tied embedding");
}

void TiedEmbedding::add_gradients() {
  if (between_)
    return all_reduce(*between_, parameters_.gradient(tokens_ ? *tokens_ : *head_), ReduceOp::sum,
                      algorithm);
  if (!tokens_ || !head_ || tokens_ == head_) return;
  const Slice sum = parameters_.gradient(*tokens_), other = parameters_.gradient(*head_);
  sum.device->reduce(sum, other, ReduceOp::sum);
  other.device->copy(other, sum);
}

Traffic TiedEmbedding::traffic() const {
  if (!between_) return {};
  const Count count = parameters_.gradient(tokens_ ? *tokens_ : *head_).count;
  return find_algorithm(all_reduce_algorithms(), "all_reduce", algorithm)
      .traffic({.ranks = 2, .count = count, .element_bytes = element_bytes(parameters_.dtype())},
               between_->rank());
}

}  // namespace lockstep
