#include "parallel/planner/step_memory.h"

#include <algorithm>

#include "parallel/planner/kernel_cost.h"

namespace lockstep {
namespace {

struct RankSizes {
  const Transformer& model;
  const Arrangement& a;

  double vocabulary_rows() const { return real(padded_vocabulary(model, a)) / a.tp; }
  double layer_parameters(bool has_experts) const {
    const std::int64_t whole = model.whole_matrices(has_experts),
                       matrices = model.layer_matrices(has_experts);
    return real(matrices - whole) / a.tp +
           real(whole + model.layer_parameters(has_experts) - matrices);
  }
  double expert_parameters() const {
    return real(model.experts.count / a.ep * model.expert_parameters()) / a.etp;
  }
  RankParameters layers(const LayerKinds& layers) const {
    return {layers.dense * layer_parameters(false) + layers.with_experts * layer_parameters(true),
            layers.with_experts * expert_parameters()};
  }
  // Parameters of the largest layer of a rank.
  double largest_layer() const {
    const double dense = layer_parameters(false);
    return model.experts.count == 0 ? dense
                                    : std::max(dense, layer_parameters(true) + expert_parameters());
  }
  // Of the products into the hidden layers of the MLPs that there are.
  double largest_matrix() const {
    return real(model.width) *
           std::max(up_columns(mlp_columns(), a.tp), up_columns(model.experts.ffn, a.etp));
  }
  double largest_hidden() const {
    return std::max(a.tokens() * up_columns(mlp_columns(), a.tp),
                    a.expert_rows(model) * up_columns(model.experts.ffn, a.etp));
  }
  // Of the MLP that all tokens pass.
  std::int64_t mlp_columns() const {
    return model.has_dense_layers() ? std::max(model.ffn, model.experts.shared_ffn)
                                    : model.experts.shared_ffn;
  }
  double up_columns(std::int64_t hidden, int ranks) const {
    return real((model.gated ? 2 : 1) * hidden) / ranks;
  }
  double embedding() const {
    return vocabulary_rows() * real(model.width) +
           (model.learned_positions ? real(model.context) * real(model.width) : 0);
  }
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

RankParameters rank_parameters(const Transformer& model, const Arrangement& a,
                               const LayerKinds& layers, bool has_first, bool has_last) {
  const RankSizes sizes{model, a};
  RankParameters parameters = sizes.layers(layers);
  parameters.shared += (has_first ? sizes.embedding() : 0) + (has_last ? sizes.head(has_first) : 0);
  return parameters;
}

RankParameters rank_parameters(const Transformer& model, const Arrangement& a,
                               const std::vector<int>& stages) {
  const std::vector<LayerKinds> by_stage = stage_layers(model, a);
  LayerKinds sum;
  for (const int stage : stages) sum += by_stage[static_cast<std::size_t>(stage)];
  return rank_parameters(model, a, sum, std::ranges::count(stages, 0) > 0,
                         std::ranges::count(stages, a.stages() - 1) > 0);
}

double layer_activation_bytes(const Transformer& model, const Arrangement& a,
                              const SoftwareProfile& profile, bool has_experts) {
  const double width = real(model.width), t = a.tokens(), between = a.tokens_between_layers(),
               heads = real(model.heads) / a.tp;
  const auto hidden = [&](std::int64_t columns, int tp) {
    return real((model.gated ? 3 : 2) * columns) / tp;
  };
  // Inputs and outputs of both norms; masks.
  double bytes = 4 * bytes_of_16_bit * between * width;
  if (profile.dropout) bytes += 2 * between * width;
  // Queries, keys, values and what attention returns.
  bytes += bytes_of_16_bit * t *
           (real(model.query_width() + model.value_width()) / a.tp + model.kv_columns(a.tp));
  if (model.latent.exists()) {
    // Inputs and outputs of the latents' norms, and values together with the part of the keys that
    // they are made with.
    const double normed = real(model.latent.query_rank + model.latent.kv_rank);
    bytes += bytes_of_16_bit * (between * (normed + real(model.latent.rotary_size)) + t * normed);
    bytes += bytes_of_16_bit * t * heads * real(model.head_size - model.latent.rotary_size);
  }
  if (model.head_norms) bytes += bytes_of_16_bit * t * model.normed_columns(a.tp);
  bytes += bytes_of_16_bit * t * hidden(has_experts ? model.experts.shared_ffn : model.ffn, a.tp);
  if (has_experts) {
    // The router's scores in 32 bits; the rows of experts, and what these return, to be weighted.
    bytes += 2 * bytes_of_16_bit * between * real(model.experts.count);
    bytes +=
        bytes_of_16_bit * a.expert_rows(model) * (2 * width + hidden(model.experts.ffn, a.etp));
  }
  if (profile.flash_attention)
    bytes += 4 * t * heads;  // the logarithms of sums
  else if (a.recompute == Recompute::none)
    bytes += t * real(a.sequence_length) * heads * (profile.dropout ? 5 : 2);
  return bytes;
}

double kept_stage_bytes(const Transformer& model, const Arrangement& a,
                        const SoftwareProfile& profile, const LayerKinds& layers) {
  if (a.recompute == Recompute::full)
    return layers.all() * bytes_of_16_bit * a.tokens_between_layers() * real(model.width);
  return layers.dense * layer_activation_bytes(model, a, profile) +
         layers.with_experts * layer_activation_bytes(model, a, profile, true);
}

RankMemory rank_memory(const Transformer& model, const Arrangement& a,
                       const SoftwareProfile& profile, const RankParameters& parameters,
                       double in_flight, bool is_last) {
  const RankSizes sizes{model, a};
  const double t = a.tokens(), width = real(model.width);
  // Of each parameter so many bytes, which zero divides from some stage on.
  const auto bytes = [&](double of_each, int divided_from) {
    const bool divides = a.zero_stage >= divided_from;
    return of_each * (parameters.shared / (divides ? a.replicas() : 1) +
                      parameters.of_experts / (divides ? a.expert_replicas() : 1));
  };
  RankMemory memory;
  memory.parameters = bytes(profile.parameter_bytes, 3);
  memory.gradients = bytes(profile.gradient_bytes, 2);
  memory.optimizer = bytes(profile.optimizer_state_bytes, 1);
  memory.activations = in_flight;
  if (a.recompute == Recompute::full)
    memory.activations +=
        std::max(layer_activation_bytes(model, a, profile),
                 parameters.of_experts > 0 ? layer_activation_bytes(model, a, profile, true) : 0);
  if (a.pp > 1) memory.communication += 2 * bytes_of_16_bit * a.tokens_between_layers() * width;
  if (a.zero_stage >= 3)
    memory.communication += 2 * profile.parameter_bytes *
                            std::max(sizes.largest_layer(), sizes.vocabulary_rows() * width);
  const double logits = is_last ? t * sizes.vocabulary_rows() : 0;
  // In the backward pass: a matrix's gradient, that of its output; on the last stage the logits'
  // gradient, and the head's.
  const double backward =
      profile.matrix_gradient_bytes * sizes.largest_matrix() +
      bytes_of_16_bit * sizes.largest_hidden() + bytes_of_16_bit * logits +
      (is_last ? profile.head_gradient_bytes * sizes.vocabulary_rows() * width : 0);
  memory.workspace = std::max(profile.logit_bytes * logits, backward);
  return memory;
}

std::vector<RankMemory> step_memory(const Transformer& model, const Arrangement& a,
                                    const SoftwareProfile& profile, const Schedule& schedule) {
  std::vector<double> kept;
  for (const LayerKinds& layers : stage_layers(model, a))
    kept.push_back(kept_stage_bytes(model, a, profile, layers));
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
