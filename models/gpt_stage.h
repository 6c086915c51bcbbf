// A stage of the model: some of its blocks, the embedding if the first is among them, the head if
// the last is. The whole model is one stage; a pipeline has several.
//
// Forward and backward are explicit: no tape. What backward needs lies in stashes, one for each
// micro-batch in flight.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "models/backend.h"
#include "models/gpt_config.h"
#include "models/layers/block.h"
#include "models/layers/whole_layers.h"
#include "models/parameters.h"

namespace lockstep {

struct StageLayers {
  int first = 0, count = 0;
};
// Layers of stage `stage` of `stages`, nearly equal: the first ones have one more.
StageLayers layers_of_stage(int layers, int stages, int stage);

// What a forward pass keeps for backward: everything; all but the attention's output, which is made
// again; or every block's input alone. Korthikanti et al., "Reducing activation recomputation in
// large transformer models", 2022.
enum class Recompute : std::uint8_t { none, selective, full };
// Throws Error (bad_input) listing the names for another one.
Recompute recompute_from_name(std::string_view name);

// How a model is trained, where that is no matter of its size.
struct ModelOptions {
  MaskOptions dropout;
  double label_smoothing = 0;
  Recompute recompute = Recompute::none;
};

// One micro-batch: N rows of which n are this rank's outside of the split layers.
struct StageStash {
  Rows rows;
  std::vector<BlockStash> blocks;
  HeadStash head;
  Tensor head_gradient, embedding_gradient;  // [n, C], of `normed` and of the embedding's output
  // Of backward in one piece, which goes from block to block: their gradients, and those of the
  // next block's output, [n, C].
  BlockGradients gradients;
  Tensor next_gradient;
};

// Called once for each parameter, when backward has finished its gradient.
using GradientReady = std::function<void(int parameter)>;

class GptStage {
 public:
  // Registers the stage's parameters. The head is tied to the token embedding where the stage has
  // both; else it has a copy, "lm_head.weight". With `full` recomputing, backward is in one piece.
  GptStage(Parameters& parameters, const GptConfig& config, StageLayers layers, Backend& backend,
           Ledger& ledger, const ModelOptions& options = {},
           const LayerFactory& factory = whole_layers());

  bool is_first() const { return layers_.first == 0; }
  bool is_last() const { return layers_.first + layers_.count == config_.layers; }
  int layers() const { return layers_.count; }
  // The token embedding of the first stage and the matrix of the last stage's head.
  std::optional<int> tokens() const;
  std::optional<int> head() const;
  Count outer_rows(Count rows) const { return split_.outer_rows(rows); }

  // input[n, C] is what the stage before gave; the first stage takes `tokens` instead. Writes
  // output[n, C], which on the last stage is the stash's own.
  void forward(StageStash& stash, const Rows& rows, std::span<const std::int32_t> tokens,
               Slice input, Slice output);
  // Of the last stage, after forward(): the sum of the token losses. The logits become their
  // gradient times `scale`.
  double loss(StageStash& stash, std::span<const std::int32_t> targets, double scale);

  // The gradient of the input, from that of the output, which the last stage has itself; the first
  // stage keeps it for its embedding.
  void backward_input(StageStash& stash, Slice output_gradient, Slice input_gradient);
  // Adds to the gradients of the weights, after backward_input() and at any time. Then the stash
  // may be used again.
  void backward_weight(StageStash& stash, std::span<const std::int32_t> tokens,
                       const GradientReady& ready = {});
  // Both in turns, so that gradients are ready early: first the head's, then block by block.
  void backward(StageStash& stash, std::span<const std::int32_t> tokens, Slice output_gradient,
                Slice input_gradient, const GradientReady& ready);

  // logits[v] of the last of the rows that went forward.
  void last_logits(const StageStash& stash, Slice logits);

 private:
  Slice buffer(Tensor& tensor, Count rows, Count columns);
  Slice outer(Tensor& tensor, const Rows& rows) {
    return buffer(tensor, split_.outer_rows(rows.count()), config_.width);
  }
  Dropout embedding_mask(const Rows& rows) const {
    return masks_.hidden(rows, 0, Dropped::embedding);
  }
  // Calls work() while what is not kept of that block is in memory that all blocks share.
  template <typename Work>
  void with_shared_memory(BlockStash& block, Work work);
  void make_again(std::size_t block, StageStash& stash);
  void embedding_backward(StageStash& stash, std::span<const std::int32_t> tokens);
  // Parameters of the head that are the stage's own: of a tied one the embedding speaks.
  void head_ready(const GradientReady& ready) const;
  // Into `own`, the gradient of the output of the last block.
  void take_output_gradient(StageStash& stash, Tensor& own, Slice output_gradient,
                            Block::Weights weights);
  void head_backward_weight(StageStash& stash);

  Parameters& parameters_;
  const GptConfig& config_;
  StageLayers layers_;
  Backend& backend_;
  Ledger& ledger_;
  ModelOptions options_;
  LayerSplit split_;
  Masks masks_;
  std::unique_ptr<Embedding> embedding_;
  std::vector<Block> blocks_;
  std::optional<LayerNorm> norm_;
  std::unique_ptr<Head> head_;

  BlockActivations shared_;           // with `full`
  AttentionOutput attention_output_;  // with `selective`
  Tensor made_again_;                 // the output of a block gone forward again
};

}  // namespace lockstep
