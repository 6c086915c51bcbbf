// Mixture of experts in a model's size: some layers have, instead of one mlp, several from which a
// router chooses for each token. Shazeer et al., "Outrageously large neural networks", 2017; Fedus,
// Zoph and Shazeer, "Switch transformers", 2021.
#pragma once

#include <algorithm>
#include <cmath>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "models/split.h"

namespace lockstep {

// How the scores of the chosen experts become weights: their softmax (Mixtral); their part of the
// softmax over all experts (Switch, DeepSeekMoE); sigmoids divided by their sum (DeepSeek-V3).
enum class RouterWeights : std::uint8_t { softmax, softmax_unnormalized, sigmoid };
std::string_view name_of(RouterWeights weights);

// Over which tokens the balancing loss takes its means: each sequence, a rank's micro-batch, or the
// global batch.
enum class BalanceLevel : std::uint8_t { sequence, micro_batch, global_batch };

struct ExpertConfig {
  int number = 0;     // experts of a layer; 0: the model has none
  int per_token = 0;  // K: a token goes to the K experts with the highest scores
  int every = 1;      // layer l has experts where (l + 1) % every == 0
  int width = 0;      // hidden columns of an expert
  int shared = 0;     // all tokens also go through a dense mlp as wide as so many experts
  RouterWeights router = RouterWeights::softmax;
  double balance = 0;  // the balancing loss is added to the loss so many times
  bool bias = false;   // its weights have a bias of each expert, which only counts for the choice

  // How a training routes. Not part of the model.
  BalanceLevel balance_level = BalanceLevel::sequence;
  double bias_rate = 0;   // a step changes each expert's bias by so much; 0: not at all
  double z_loss = 0;      // the mean over the tokens of lse(scores)^2 is added so many times
  int groups = 1;         // of neighbouring experts; a token chooses among those of some groups
  int chosen_groups = 1;  // the best, by the sum of the best K / chosen_groups experts of each
  double capacity = 0;    // a micro-batch sends an expert at most capacity K N / E tokens; 0: all
  bool drops_by_position = false;  // beyond that: the last tokens instead of the smallest weights

  bool exist() const { return number > 0; }
  bool has_bias() const { return bias || bias_rate > 0; }
  bool in_layer(int layer) const { return exist() && (layer + 1) % every == 0; }
  // How many layers among these have experts.
  int layers_among(int first, int count) const {
    return exist() ? (first + count) / every - first / every : 0;
  }
  // Tokens that an expert takes of so many, at most.
  Count capacity_of(Count tokens) const {
    if (capacity == 0) return tokens;
    const double mean = static_cast<double>(per_token * tokens) / number;
    return std::min(tokens, static_cast<Count>(std::ceil(capacity * mean)));
  }
  // Rows that so many experts get from so many tokens, at most.
  Count most_rows(Count tokens, Count experts) const {
    return std::min(tokens * std::min<Count>(per_token, experts), experts * capacity_of(tokens));
  }
  Count most_rows(Count tokens) const { return most_rows(tokens, number); }
  // Rows that the experts of a rank get from all ranks, at most. Memory is for so many, whatever the
  // routers choose.
  Count most_rows(const ExpertSplit& split) const {
    return split.ranks * split.gathered_ranks() *
           most_rows(split.most_tokens, split.experts(number));
  }
  Count shared_width() const { return Count{shared} * width; }
  // Parameters of the mlp of a layer with experts.
  Count parameter_count(Count model_width) const;
};

// The keys of config.json; none of them: no experts. Throws Error (bad_input) naming the file and the
// key that is missing, unknown or out of range.
ExpertConfig parse_experts(const nlohmann::json& file, const std::string& path);
void add_experts(nlohmann::ordered_json& file, const ExpertConfig& experts);
// Throws Error (bad_input) that names the field and its range, or the flag of a training's options.
void check(const ExpertConfig& experts, int layers);
// Whether their weights have the same shapes and meaning.
bool is_same_model(const ExpertConfig& a, const ExpertConfig& b);

}  // namespace lockstep
