// A stage of the model: some of its blocks, with the embedding before the first and the head after
// the last. The whole model is one stage; a pipeline has several.
//
// Forward and backward are explicit, without a tape. Each micro-batch in flight has a stash with
// everything that backward needs.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "models/backend.h"
#include "models/gpt/input_store.h"
#include "models/gpt/recompute.h"
#include "models/gpt_config.h"
#include "models/layers/block.h"
#include "models/layers/whole_layers.h"
#include "models/lora_config.h"
#include "models/parameters.h"

namespace lockstep {

struct StageLayers {
  int first = 0, count = 0;
};
// Layers of stage `stage` of `stages`, nearly equal: the first ones have one more.
StageLayers layers_of_stage(int layers, int stages, int stage);

// Where the inputs lie that `full` recomputation needs: whole on each rank; as one part on each of
// the ranks that split the layers; or these parts in another tier of memory.
enum class KeptInput : std::uint8_t { whole, part, offloaded };

// How a model is trained, apart from its size.
struct ModelOptions {
  MaskOptions dropout;
  double label_smoothing = 0;
  Recompute recompute = Recompute::none;
  KeptInput kept_input = KeptInput::whole;
  LoraConfig lora = {};
};

// One each for blocks with a dense mlp and for blocks with experts.
template <typename T>
struct ByMlp {
  T dense{}, experts{};

  T& operator[](bool has_experts) { return has_experts ? experts : dense; }
  const T& operator[](bool has_experts) const { return has_experts ? experts : dense; }
};

// One micro-batch: N rows, n of them this rank's outside of split layers.
struct StageStash {
  Rows rows;
  std::vector<BlockStash> blocks;
  std::vector<int> stored_inputs;  // numbers of the blocks' inputs, if another object keeps those
  std::vector<Routing> routings;   // of the blocks, while they have no memory
  HeadStash head;
  Tensor head_gradient, embedding_gradient;  // [n, C], of `normed` and of the embedding's output
  // For a whole backward pass, which goes from block to block: the gradients of the blocks, and that
  // of the next block's output, [n, C].
  BlockGradients gradients;
  ByMlp<LayerStash> mlp_gradients;
  Tensor next_gradient;
};

// The tokens that the last stage should predict, and a factor for the gradient of their loss.
struct Targets {
  std::span<const std::int32_t> tokens;
  double scale = 1;
};

// A unit: parameters first .. last of a set, which a pass uses together. A block, the experts of a
// block if ranks divide them, its adapters if it has any, or an end of the model: the embedding before the first block, or the
// last layer norm with the head.
struct Unit {
  int first = 0, last = 0;
  ParameterSet set = ParameterSet::dense;
};
// The forward pass of a validation has no backward pass. Backward comes in one piece or in two.
enum class UnitUse : std::uint8_t {
  evaluation,
  forward,
  backward,
  input_gradient,
  weight_gradient,
};

// Observes a stage's passes. Sharded data parallelism gathers a unit's parameters before its use,
// and frees them after it. Passes read a unit's parameters, and backward and weight_gradient add to
// its gradients, only in between. Exception: a tied head also uses the embedding's matrix.
class PassObserver {
 public:
  virtual ~PassObserver() = default;
  virtual void before_use(const Unit& /*unit*/, UnitUse /*use*/) {}
  virtual void after_use(const Unit& /*unit*/, UnitUse /*use*/) {}
  // The pass has added all that its micro-batch adds to the gradient of a parameter. Called once for
  // each parameter of the unit in use.
  virtual void gradient_ready(int /*parameter*/, ParameterSet /*set*/) {}
};

class GptStage {
 public:
  // Registers the stage's parameters. If they are frozen, those of its adapters are apart. If the stage has both head and token embedding, they are tied.
  // Otherwise the head has a copy, "lm_head.weight". With `full` recomputation, backward must be
  // whole.
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
  // The stage's units in the order of a forward pass.
  std::vector<Unit> units() const;
  // The observer must outlive the stage's passes.
  void observe(PassObserver& observer) { observer_ = &observer; }
  // With `full` recomputation: keeps the inputs of blocks in `store`, which must outlive the passes.
  void keep_inputs_in(InputStore& store) { store_ = &store; }

  // The stash's memory for the first block's input; writing the input there saves a copy in
  // forward().
  Slice input(StageStash& stash, const Rows& rows);
  bool has_experts(std::size_t block) const {
    return config_.experts.in_layer(layers_.first + static_cast<int>(block));
  }
  std::vector<LayerRouter> routers() {
    std::vector<LayerRouter> routers;
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      if (Router* const router = blocks_[i].router())
        routers.push_back({.layer = layers_.first + static_cast<int>(i), .router = router});
    return routers;
  }
  // What the routers have chosen in training since take_routing() was called.
  const RoutingTotals& routing() const { return routing_; }
  RoutingTotals take_routing() { return std::exchange(routing_, {}); }
  // input[n, C] comes from the previous stage; the first stage takes `tokens` instead. Writes
  // output[n, C], which on the last stage is in the stash. With targets, the last stage returns the
  // sum of their losses, and its logits become their gradient; otherwise the result is 0.
  double forward(StageStash& stash, const Rows& rows, std::span<const std::int32_t> tokens,
                 Slice input, Slice output, const std::optional<Targets>& targets = {});

  // Computes the gradient of the input from that of the output, which the last stage has itself. The
  // first stage keeps it for its embedding.
  void backward_input(StageStash& stash, Slice output_gradient, Slice input_gradient);
  // Adds to the gradients of the weights. May run at any time after backward_input(). Afterwards the
  // stash may be reused.
  void backward_weight(StageStash& stash, std::span<const std::int32_t> tokens);
  // Alternates the two halves, so that gradients are ready early: first the head's, then block by
  // block.
  void backward(StageStash& stash, std::span<const std::int32_t> tokens, Slice output_gradient,
                Slice input_gradient);

  // logits[v] of the last row of forward().
  void last_logits(const StageStash& stash, Slice logits);

 private:
  // The set of all parameters but adapters and divided experts.
  ParameterSet base_set() const {
    return parameters_.are_frozen() ? ParameterSet::frozen : ParameterSet::dense;
  }
  Unit embedding_unit() const {
    return {embedding_->tokens(), embedding_->positions(), base_set()};
  }
  Unit head_unit() const;
  // The units of a block: with experts or adapters of their own, two; with packed matrices, three.
  std::vector<Unit> block_units(std::size_t i) const;
  // Runs work() as a use of the units.
  template <typename Work>
  void with_units(const std::vector<Unit>& units, UnitUse use, Work work);

  Slice buffer(Tensor& tensor, Count rows, Count columns);
  Slice outer(Tensor& tensor, const Rows& rows) {
    return buffer(tensor, split_.outer_rows(rows.count()), config_.width);
  }
  Dropout embedding_mask(const Rows& rows) const {
    return masks_.hidden(rows, 0, Dropped::embedding);
  }
  // Calls work() while recomputed tensors of that block, and its input if that is kept elsewhere, are
  // in memory that all blocks share.
  template <typename Work>
  void with_shared_memory(std::size_t block, StageStash& stash, Work work);
  // Memory for the input of a block that is kept elsewhere; its output is the next block's input.
  Tensor& passing_input(std::size_t block) { return passing_inputs_[block % 2]; }
  void bring_input_back(std::size_t block, StageStash& stash);
  void make_again(std::size_t block, StageStash& stash);
  void announce(const Unit& unit);
  void announce_block(std::size_t i);
  void embedding_backward(StageStash& stash, std::span<const std::int32_t> tokens, UnitUse use);
  // The weight gradients of the last layer norm. Announces them and the head's own parameters; the
  // embedding announces a tied matrix.
  void norm_backward_weight(StageStash& stash);
  // Moves the gradient of the last block's output into `own`.
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
  PassObserver* observer_ = nullptr;
  InputStore* store_ = nullptr;
  std::unique_ptr<Embedding> embedding_;
  std::vector<Block> blocks_;
  std::vector<Unit> adapters_, packed_;  // of the blocks, if the parameters are frozen; if packed
  std::optional<LayerNorm> norm_;
  std::unique_ptr<Head> head_;

  RoutingTotals routing_;
  BlockActivations shared_;               // with `full`
  ByMlp<LayerStash> shared_mlps_;         // with `full`
  std::array<Tensor, 2> passing_inputs_;  // with `full` and a store
  LayerStash attention_output_;           // with `selective`
  Tensor made_again_;                     // the output of a recomputed block
};

}  // namespace lockstep
