#include "parallel/planner/step_memory.h"

#include <algorithm>

namespace lockstep {
namespace {

double real(std::int64_t value) { return static_cast<double>(value); }

struct RankSizes {
  const Transformer& model;
  const Arrangement& a;

  double vocabulary_rows() const { return real(padded_vocabulary(model, a)) / a.tp; }
  double kv_columns() const {
    return real(std::max<std::int64_t>(1, model.kv_heads / a.tp) * model.head_size);
  }
  double up_columns() const { return real((model.gated ? 2 : 1) * model.ffn) / a.tp; }
  double layer_matrices() const { return real(model.layer_matrices()) / a.tp; }
  double layer_parameters() const {
    return layer_matrices() + real(model.layer_parameters() - model.layer_matrices());
  }
  double largest_matrix() const { return real(model.width) * up_columns(); }
  double embedding() const {
    return vocabulary_rows() * real(model.width) +
           (model.learned_positions ? real(model.context) * real(model.width) : 0);
  }
  bool is_first(int stage) const { return stage == 0; }
  bool is_last(int stage) const { return stage == a.stages() - 1; }
  // A tied head has a copy of the embedding, if it is on another rank.
  double head(bool has_embedding) const {
    const double matrix =
        model.tied_head && has_embedding ? 0 : vocabulary_rows() * real(model.width);
    return matrix + real(model.width) * (model.layer_norm ? 2 : 1);
  }
};

// The most bytes of micro-batches in flight, as the rank's actions begin and end them.
double peak_in_flight(const std::vector<Action>& actions, const std::vector<double>& by_stage) {
  double held = 0, peak = 0;
  for (const Action& action : actions) {
    const double bytes = by_stage[static_cast<std::size_t>(action.stage)];
    if (action.pass == Pass::forward) held += bytes;
    if (action.pass == Pass::backward || action.pass == Pass::weight_gradient) held -= bytes;
    peak = std::max(peak, held);
  }
  return peak;
}

}  // namespace

std::vector<std::vector<int>> stages_by_rank(const Schedule& schedule) {
  std::vector<std::vector<int>> result(schedule.by_rank.size());
  const std::vector<int> ranks = schedule.rank_of_stage();
  for (int stage = 0; stage < schedule.stages; ++stage)
    result[static_cast<std::size_t>(ranks[static_cast<std::size_t>(stage)])].push_back(stage);
  return result;
}

double first_rank_parameters(const Transformer& model, const Arrangement& a, double layers) {
  const RankSizes sizes{model, a};
  return layers * sizes.layer_parameters() + sizes.embedding() + (a.pp == 1 ? sizes.head(true) : 0);
}
double last_rank_parameters(const Transformer& model, const Arrangement& a, double layers) {
  const RankSizes sizes{model, a};
  return layers * sizes.layer_parameters() + sizes.head(false) +
         (a.pp == 1 ? sizes.embedding() : 0);
}

double rank_parameters(const Transformer& model, const Arrangement& a,
                       const std::vector<int>& stages) {
  const RankSizes sizes{model, a};
  const bool has_embedding = std::ranges::any_of(stages, [&](int s) { return sizes.is_first(s); });
  double sum = has_embedding ? sizes.embedding() : 0;
  for (const int stage : stages) {
    sum += a.layers_per_stage[static_cast<std::size_t>(stage)] * sizes.layer_parameters();
    if (sizes.is_last(stage)) sum += sizes.head(has_embedding);
  }
  return sum;
}

double layer_activation_bytes(const Transformer& model, const Arrangement& a,
                              const SoftwareProfile& profile) {
  const RankSizes sizes{model, a};
  const double width = real(model.width), t = a.tokens(), between = a.tokens_between_layers(),
               query_columns = real(model.query_width()) / a.tp,
               hidden_columns = real(model.ffn) / a.tp;
  // Inputs and outputs of both norms; masks.
  double bytes = 4 * bytes_of_16_bit * between * width;
  if (profile.dropout) bytes += 2 * between * width;
  bytes += bytes_of_16_bit * t * (2 * query_columns + 2 * sizes.kv_columns());
  bytes += bytes_of_16_bit * t * (sizes.up_columns() + hidden_columns);
  const double heads = real(model.heads) / a.tp;
  if (profile.flash_attention)
    bytes += 4 * t * heads;  // the logarithms of sums
  else if (a.recompute == Recompute::none)
    bytes += t * real(a.sequence_length) * heads * (profile.dropout ? 5 : 2);
  return bytes;
}

double kept_layer_bytes(const Transformer& model, const Arrangement& a,
                        const SoftwareProfile& profile) {
  if (a.recompute == Recompute::full)
    return bytes_of_16_bit * a.tokens_between_layers() * real(model.width);
  return layer_activation_bytes(model, a, profile);
}

RankMemory rank_memory(const Transformer& model, const Arrangement& a,
                       const SoftwareProfile& profile, double parameters, double in_flight,
                       bool is_last) {
  const RankSizes sizes{model, a};
  const double replicas = a.replicas(), t = a.tokens(), width = real(model.width);
  RankMemory memory;
  memory.parameters = profile.parameter_bytes * parameters / (a.zero_stage >= 3 ? replicas : 1);
  memory.gradients = profile.gradient_bytes * parameters / (a.zero_stage >= 2 ? replicas : 1);
  memory.optimizer =
      profile.optimizer_state_bytes * parameters / (a.zero_stage >= 1 ? replicas : 1);
  memory.activations = in_flight;
  if (a.recompute == Recompute::full)
    memory.activations += layer_activation_bytes(model, a, profile);
  if (a.pp > 1) memory.communication += 2 * bytes_of_16_bit * a.tokens_between_layers() * width;
  if (a.zero_stage >= 3)
    memory.communication += 2 * profile.parameter_bytes *
                            std::max(sizes.layer_parameters(), sizes.vocabulary_rows() * width);
  const double logits = is_last ? t * sizes.vocabulary_rows() : 0;
  // In the backward pass: a matrix's gradient, that of its output; on the last stage the logits'
  // gradient, and the head's.
  const double backward =
      profile.matrix_gradient_bytes * sizes.largest_matrix() +
      bytes_of_16_bit * t * sizes.up_columns() + bytes_of_16_bit * logits +
      (is_last ? profile.head_gradient_bytes * sizes.vocabulary_rows() * width : 0);
  memory.workspace = std::max(profile.logit_bytes * logits, backward);
  return memory;
}

std::vector<RankMemory> step_memory(const Transformer& model, const Arrangement& a,
                                    const SoftwareProfile& profile, const Schedule& schedule) {
  std::vector<double> kept;
  for (int stage = 0; stage < a.stages(); ++stage)
    kept.push_back(a.layers_per_stage[static_cast<std::size_t>(stage)] *
                   kept_layer_bytes(model, a, profile));
  const auto stages = stages_by_rank(schedule);
  std::vector<RankMemory> result;
  for (int rank = 0; rank < a.pp; ++rank) {
    const auto& own = stages[static_cast<std::size_t>(rank)];
    const bool is_last = std::ranges::count(own, a.stages() - 1) > 0;
    result.push_back(rank_memory(
        model, a, profile, rank_parameters(model, a, own),
        peak_in_flight(schedule.by_rank[static_cast<std::size_t>(rank)], kept), is_last));
    result.back().rank = rank;
  }
  return result;
}

}  // namespace lockstep
