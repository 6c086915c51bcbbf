#include "parallel/pipeline/execution/stashes.h"

#include <algorithm>

namespace lockstep {

void Stashes::take_forward(StageStash& stash, const GptStage& stage) {
  for (int i = 0; i < stage.layers(); ++i) stash.blocks.push_back(blocks_.take());
  if (stage.is_last()) stash.head = heads_.take();
}

void Stashes::take_backward(StageStash& stash, const GptStage& stage, Pass pass) {
  if (pass == Pass::backward) {
    stash.gradients = gradients_.take();
    if (stage.layers() > 1) stash.next_gradient = ends_.take();
  } else {
    for (BlockStash& block : stash.blocks) {
      block.gradients = gradients_.take();
      if (recompute_ == Recompute::selective) block.kept.attention.output = attentions_.take();
    }
  }
  if (stage.is_last()) stash.head_gradient = ends_.take();
  if (stage.is_first()) stash.embedding_gradient = ends_.take();
}

void Stashes::give(StageStash& stash, const GptStage& stage) {
  const auto give_if = [](bool exists, auto& pool, auto& one) {
    if (exists) pool.give(std::exchange(one, {}));
  };
  for (BlockStash& block : stash.blocks) {
    give_if(block.gradients.output.count() > 0, gradients_, block.gradients);
    LayerStash& attention = block.kept.attention.output;
    give_if(recompute_ == Recompute::selective && !attention.empty(), attentions_, attention);
    blocks_.give(std::move(block));
  }
  stash.blocks.clear();
  if (stage.is_last()) heads_.give(std::exchange(stash.head, {}));
  give_if(stash.gradients.output.count() > 0, gradients_, stash.gradients);
  for (Tensor* end : {&stash.next_gradient, &stash.head_gradient, &stash.embedding_gradient})
    give_if(end->count() > 0, ends_, *end);
}

namespace {

class HeldStashes {
 public:
  HeldStashes(int stages, int layers, Recompute recompute)
      : stages_(stages), layers_(layers), recompute_(recompute) {}

  void run(const Action& action) {
    const bool recomputes = recompute_ == Recompute::full;
    const bool makes_again = recomputes && action.pass != Pass::forward;
    switch (action.pass) {
      case Pass::forward:
        take_forward(action, 1);
        if (!recomputes) return;
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
      case Pass::unshard:
      case Pass::reshard:
      case Pass::reduce_gradients:
        return;
    }
  }
  const StashPeaks& most() const { return most_; }

 private:
  int blocks_of(const Action& action) const {
    return layers_of_stage(layers_, stages_, action.stage).count;
  }
  void take_forward(const Action& action, int number) {
    now_.blocks += number * blocks_of(action);
    if (action.stage == stages_ - 1) now_.heads += number;
    note();
  }
  // A whole backward pass goes from block to block with one set of gradients.
  void take_backward(const Action& action, int number) {
    const bool in_one_piece = action.pass == Pass::backward;
    const int blocks = blocks_of(action);
    now_.block_gradients += number * (in_one_piece ? 1 : blocks);
    if (in_one_piece && blocks > 1) now_.end_gradients += number;
    if (!in_one_piece && recompute_ == Recompute::selective) now_.attentions += number * blocks;
    if (action.stage == stages_ - 1) now_.end_gradients += number;
    if (action.stage == 0) now_.end_gradients += number;
    note();
  }
  void note() {
    for (int StashPeaks::*field :
         {&StashPeaks::blocks, &StashPeaks::block_gradients, &StashPeaks::attentions,
          &StashPeaks::heads, &StashPeaks::end_gradients, &StashPeaks::inputs})
      most_.*field = std::max(most_.*field, now_.*field);
  }

  int stages_, layers_;
  Recompute recompute_;
  StashPeaks now_, most_;
};

}  // namespace

StashPeaks stash_peaks(const std::vector<Action>& actions, int stages, int layers,
                       Recompute recompute) {
  HeldStashes held(stages, layers, recompute);
  for (const Action& action : actions) held.run(action);
  return held.most();
}

StashPeaks stash_peaks(const Plan& plan, int rank) {
  const Recompute recompute = plan.stage_options().recompute;
  return stash_peaks(plan.schedule.by_rank[static_cast<std::size_t>(plan.place(rank, Axis::pp))],
                     plan.schedule.stages, plan.model.layers,
                     plan.recomputes_stages()            ? Recompute::full
                     : recompute == Recompute::selective ? Recompute::selective
                                                         : Recompute::none);
}

Count stash_bytes(const StashPeaks& peaks, const ActivationBytes& bytes) {
  return peaks.blocks * bytes.kept_of_block() +
         peaks.block_gradients * total(bytes.block_gradients()) +
         peaks.attentions * total(bytes.attention()) + peaks.heads * total(bytes.head()) +
         peaks.end_gradients * bytes.outer() + peaks.inputs * bytes.kept_input();
}

}  // namespace lockstep
