// The memory of micro-batches in flight: taken when a pass begins, returned when it is no longer
// needed, and reused. A replay of the same actions without memory predicts its peak.
#pragma once

#include <utility>
#include <vector>

#include "models/gpt/activation_bytes.h"
#include "models/gpt/gpt_stage.h"
#include "parallel/plan/plan.h"

namespace lockstep {

template <typename T>
class Pool {
 public:
  T take() {
    if (free_.empty()) return T();
    T one = std::move(free_.back());
    free_.pop_back();
    return one;
  }
  void give(T one) { free_.push_back(std::move(one)); }

 private:
  std::vector<T> free_;
};

// The blocks of all stages of a rank share pools.
class Stashes {
 public:
  explicit Stashes(Recompute recompute) : recompute_(recompute) {}

  // Takes the memory that a forward pass fills, or the memory that a backward pass (whole, or for
  // the input only) adds to it.
  void take_forward(StageStash& stash, const GptStage& stage);
  void take_backward(StageStash& stash, const GptStage& stage, Pass pass);
  // Returns both, if they exist.
  void give(StageStash& stash, const GptStage& stage);

  Tensor take_message() { return messages_.take(); }
  void give_message(Tensor tensor) { messages_.give(std::move(tensor)); }

 private:
  Recompute recompute_;
  Pool<BlockStash> blocks_;  // without their mlps
  ByMlp<Pool<LayerStash>> mlps_, mlp_gradients_;
  Pool<LayerStash> attentions_;  // recomputed outputs, which are kept from then on
  Pool<BlockGradients> gradients_;
  Pool<HeadStash> heads_;
  Pool<Tensor> ends_;  // gradients at the head, at the embedding and between blocks
  Pool<Tensor> messages_;
};

// The largest number of each that a rank holds at once while it runs its actions: a replay of them,
// not a formula, so it covers any schedule.
struct StashPeaks {
  int blocks = 0, block_gradients = 0, attentions = 0, heads = 0, end_gradients = 0, inputs = 0;
  ByMlp<int> mlps = {}, mlp_gradients = {};
};
StashPeaks stash_peaks(const Plan& plan, int rank);
// Their bytes, if backward reaches the attention of any block.
Count stash_bytes(const StashPeaks& peaks, const ActivationBytes& bytes, bool reaches_attention);

}  // namespace lockstep
