// GPT-2's architecture: learned positions, pre-LN blocks, GELU, the head tied to the token
// embedding. Radford et al., "Language models are unsupervised multitask learners", 2019.
//
// Forward and backward are explicit: no tape. What backward needs lies in stashes, one for each
// micro-batch in flight.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "models/backend.h"
#include "models/dataset.h"
#include "models/gpt_config.h"
#include "models/layers/block.h"
#include "models/parameters.h"

namespace lockstep {

class Gpt {
 public:
  // Without memory it is its parameters' names and shapes: for ranks that keep some of them, but do
  // not compute.
  Gpt(const GptConfig& config, Backend& backend, DType dtype, Ledger& ledger,
      bool has_memory = true);
  Gpt(const Gpt&) = delete;

  const GptConfig& config() const { return config_; }
  Parameters& parameters() { return parameters_; }

  // GPT-2's: N(0, 0.02), the projections that end a residual branch by 1 / sqrt(2 layers) less,
  // biases 0, norms 1. A parameter's values depend on the seed and its place alone.
  void initialize(std::uint64_t seed);

  // Called once for each parameter, when backward has finished its gradient.
  using GradientReady = std::function<void(int parameter)>;
  // Returns (sum of the batch's token losses) / total_targets, and adds the gradients of that
  // quotient times `loss_scale`.
  double forward_backward(const Batch& batch, Count total_targets, const GradientReady& ready = {},
                          double loss_scale = 1);
  // The sum of the batch's token losses.
  double loss_sum(const Batch& batch);
  // The logits [vocabulary] of the token after `context`, which is not longer than the model's
  // context.
  std::vector<double> next_token_logits(std::span<const std::int32_t> context);

 private:
  // Runs the blocks and the last norm; the last hidden states are in normed_.
  void forward(std::span<const std::int32_t> inputs, const Rows& rows);
  // Turns normed_ into logits_, and those into their gradient times `scale`. Returns the sum of the
  // losses.
  double head_loss(std::span<const std::int32_t> targets, double scale);
  void backward_head(const GradientReady& ready);
  void backward_blocks(const GradientReady& ready);
  Slice buffer(Tensor& tensor, Count rows, Count columns, MemoryUse use);

  GptConfig config_;
  Backend& backend_;
  Ledger& ledger_;
  Parameters parameters_;
  int tokens_, positions_;
  std::vector<Block> blocks_;
  LayerNorm last_norm_;
  std::vector<BlockStash> stashes_;
  LayerNormStash last_stash_;
  Tensor last_, normed_, logits_, dnormed_, dembedded_;
};

}  // namespace lockstep
