#include "parallel/pipeline/stashes.h"

#include <algorithm>

namespace lockstep {

void Stashes::take_forward(StageStash& stash, const GptStage& stage) {
  for (int i = 0; i < stage.layers(); ++i) stash.blocks.push_back(blocks_.take());
  if (stage.is_last()) stash.head = heads_.take();
}

void Stashes::take_backward(StageStash& stash, const GptStage& stage) {
  for (BlockStash& block : stash.blocks) block.gradients = gradients_.take();
  if (stage.is_last()) stash.head_gradient = ends_.take();
  if (stage.is_first()) stash.embedding_gradient = ends_.take();
}

void Stashes::give(StageStash& stash, const GptStage& stage) {
  const auto give_if_any = [](auto& pool, auto& one, const Tensor& any) {
    if (any.count() > 0) pool.give(std::exchange(one, {}));
  };
  for (BlockStash& block : stash.blocks) {
    give_if_any(gradients_, block.gradients, block.gradients.output);
    blocks_.give(std::move(block));
  }
  stash.blocks.clear();
  if (stage.is_last()) heads_.give(std::exchange(stash.head, {}));
  give_if_any(ends_, stash.head_gradient, stash.head_gradient);
  give_if_any(ends_, stash.embedding_gradient, stash.embedding_gradient);
}

namespace {

class Held {
 public:
  Held(int stages, int layers, bool recomputes)
      : stages_(stages), layers_(layers), recomputes_(recomputes) {}

  void run(const Action& action) {
    const bool makes_again = recomputes_ && action.pass != Pass::forward;
    switch (action.pass) {
      case Pass::forward:
        take_forward(action, 1);
        if (!recomputes_) return;
        if (action.stage > 0) ++now_.inputs;
        note();
        return take_forward(action, -1);
      case Pass::backward:
      case Pass::input_gradient:
        if (makes_again) take_forward(action, 1);
        take_backward(action, 1);
        if (makes_again && action.stage > 0) --now_.inputs;
        if (action.pass == Pass::input_gradient) return;
        [[fallthrough]];
      case Pass::weight_gradient:
        take_backward(action, -1);
        return take_forward(action, -1);
    }
  }
  const StashPeaks& most() const { return most_; }

 private:
  void take_forward(const Action& action, int number) {
    now_.blocks += number * layers_of_stage(layers_, stages_, action.stage).count;
    if (action.stage == stages_ - 1) now_.heads += number;
    note();
  }
  void take_backward(const Action& action, int number) {
    now_.block_gradients += number * layers_of_stage(layers_, stages_, action.stage).count;
    if (action.stage == stages_ - 1) now_.end_gradients += number;
    if (action.stage == 0) now_.end_gradients += number;
    note();
  }
  void note() {
    for (int StashPeaks::*field :
         {&StashPeaks::blocks, &StashPeaks::block_gradients, &StashPeaks::heads,
          &StashPeaks::end_gradients, &StashPeaks::inputs})
      most_.*field = std::max(most_.*field, now_.*field);
  }

  int stages_, layers_;
  bool recomputes_;
  StashPeaks now_, most_;
};

}  // namespace

StashPeaks stash_peaks(const std::vector<Action>& actions, int stages, int layers,
                       bool recomputes) {
  Held held(stages, layers, recomputes);
  for (const Action& action : actions) held.run(action);
  return held.most();
}

Count stash_bytes(const StashPeaks& peaks, const GptConfig& config, Count rows, DType dtype) {
  return peaks.blocks * GptStage::block_bytes(config, rows, dtype) +
         peaks.block_gradients * GptStage::block_gradient_bytes(config, rows, dtype) +
         peaks.heads * GptStage::head_bytes(config, rows, dtype) +
         (peaks.end_gradients + peaks.inputs) * GptStage::end_gradient_bytes(config, rows, dtype);
}

}  // namespace lockstep
