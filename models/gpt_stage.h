// A stage of the model: some of its blocks, the embedding if the first is among them, the head if
// the last is. The whole model is one stage; a pipeline has several.
//
// Forward and backward are explicit: no tape. What backward needs lies in stashes, one for each
// micro-batch in flight.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "models/backend.h"
#include "models/gpt_config.h"
#include "models/layers/block.h"
#include "models/parameters.h"

namespace lockstep {

struct StageLayers {
  int first = 0, count = 0;
};
// Layers of stage `stage` of `stages`, nearly equal: the first ones have one more.
StageLayers layers_of_stage(int layers, int stages, int stage);

// Of the head: its input, that normed, and the logits, which become their gradient.
struct HeadStash {
  Tensor input, normed, logits;  // [N, C], [N, C], [N, V]
  LayerNormStash norm;
};

struct StageStash {
  Rows rows;
  std::vector<BlockStash> blocks;
  HeadStash head;
  Tensor head_gradient, embedding_gradient;  // [N, C], of `normed` and of the embedding's output
};

// Called once for each parameter, when backward has finished its gradient.
using GradientReady = std::function<void(int parameter)>;

class GptStage {
 public:
  // Registers the stage's parameters. The head is tied to the token embedding where the stage has
  // both; else it has a copy, "lm_head.weight".
  GptStage(Parameters& parameters, const GptConfig& config, StageLayers layers, Backend& backend,
           Ledger& ledger);

  bool is_first() const { return layers_.first == 0; }
  bool is_last() const { return layers_.first + layers_.count == config_.layers; }
  int layers() const { return layers_.count; }
  int first_parameter() const { return first_parameter_; }
  int last_parameter() const { return last_parameter_; }
  // The token embedding of the first stage and the matrix of the last stage's head.
  std::optional<int> tokens() const { return tokens_; }
  std::optional<int> head() const { return head_; }

  // input[N, C] is what the stage before gave; the first stage takes `tokens` instead. Writes
  // output[N, C], which on the last stage is the stash's own.
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
  void backward_weight(StageStash& stash, std::span<const std::int32_t> tokens);
  // Both in turns, so that gradients are ready early: first the head's, then block by block.
  void backward(StageStash& stash, std::span<const std::int32_t> tokens, Slice output_gradient,
                Slice input_gradient, const GradientReady& ready);

  // logits[v] of the last of the rows that went forward.
  void last_logits(const StageStash& stash, Slice logits);

  // Bytes of a micro-batch's stash of one block, and of the gradients that join it; of the head's;
  // and of the gradient that a stage with a head or an embedding keeps.
  static Count block_bytes(const GptConfig& config, Count rows, DType dtype);
  static Count block_gradient_bytes(const GptConfig& config, Count rows, DType dtype);
  static Count head_bytes(const GptConfig& config, Count rows, DType dtype);
  static Count end_gradient_bytes(const GptConfig& config, Count rows, DType dtype);

 private:
  Slice buffer(Tensor& tensor, Count rows, Count columns);
  void head_backward_input(StageStash& stash);
  void head_backward_weight(StageStash& stash);
  void block_backward_input(StageStash& stash, std::size_t block, Slice input_gradient);
  void embedding_backward(StageStash& stash, std::span<const std::int32_t> tokens);
  void take_output_gradient(StageStash& stash, Slice output_gradient);

  Parameters& parameters_;
  const GptConfig& config_;
  StageLayers layers_;
  Backend& backend_;
  Ledger& ledger_;
  int first_parameter_;
  std::optional<int> tokens_, positions_;
  std::vector<Block> blocks_;
  std::optional<LayerNorm> norm_;
  std::optional<int> head_;
  int last_parameter_;
};

}  // namespace lockstep
