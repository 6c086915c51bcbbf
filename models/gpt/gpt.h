// GPT-2's architecture: learned positions, pre-LN blocks, GELU, the head tied to the token
// embedding. Radford et al., "Language models are unsupervised multitask learners", 2019.
//
// The whole model: one stage, and the stash of one micro-batch.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "models/backend.h"
#include "models/data/dataset.h"
#include "models/gpt/gpt_stage.h"
#include "models/gpt_config.h"
#include "models/parameters.h"

namespace lockstep {

class Gpt {
 public:
  // Without memory it has only the names and shapes of its parameters: for ranks that hold some of
  // them, but do not compute with all.
  Gpt(const GptConfig& config, Backend& backend, DType dtype, Ledger& ledger,
      bool has_memory = true, const ModelOptions& options = {});
  Gpt(const Gpt&) = delete;

  const GptConfig& config() const { return config_; }
  Backend& backend() const { return backend_; }
  // The parameters that are trained: with adapters, theirs only.
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  // With adapters: all others, and those of them that are packed. Else there are none.
  Parameters& frozen() { return frozen_; }
  Parameters& packed() { return adapters_->packed(); }
  const ModelOptions& options() const { return options_; }

  // See initialize_weights().
  void initialize(std::uint64_t seed);

  // The observer must outlive the passes.
  void observe(PassObserver& observer) { stage_.observe(observer); }

  // Returns (sum of the batch's token losses) / total_targets, and adds the gradients of that
  // quotient times `loss_scale`.
  double forward_backward(const Batch& batch, Count total_targets, double loss_scale = 1);
  RoutingTotals take_routing() { return stage_.take_routing(); }
  const RoutingTotals& routing() const { return stage_.routing(); }
  std::vector<LayerRouter> routers() { return stage_.routers(); }
  // The sum of the batch's token losses, without dropout and smoothing.
  double loss_sum(const Batch& batch);
  // The logits [vocabulary] of the token after `context`, which must fit the model's context.
  std::vector<double> next_token_logits(std::span<const std::int32_t> context);

 private:
  GptConfig config_;
  ModelOptions options_;
  Backend& backend_;
  Ledger& ledger_;
  Parameters parameters_;
  std::optional<Adapters> adapters_;
  Parameters frozen_;
  GptStage stage_;
  StageStash stash_;
};

}  // namespace lockstep
