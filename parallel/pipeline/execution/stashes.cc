#include "parallel/pipeline/execution/stashes.h"

#include <algorithm>

namespace lockstep {

void Stashes::take_forward(StageStash& stash, const GptStage& stage) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(stage.layers()); ++i) {
    BlockStash& block = stash.blocks.emplace_back(blocks_.take());
    block.mlp.tensors = mlps_[stage.has_experts(i)].take();
    if (!stash.routings.empty()) block.mlp.routing = std::move(stash.routings[i]);
  }
  stash.routings.clear();
  if (stage.is_last()) stash.head = heads_.take();
}

void Stashes::take_backward(StageStash& stash, const GptStage& stage, Pass pass) {
  if (pass == Pass::backward) {
    stash.gradients = gradients_.take();
    for (std::size_t i = 0; i < stash.blocks.size(); ++i)
      if (LayerStash& own = stash.mlp_gradients[stage.has_experts(i)]; own.empty())
        own = mlp_gradients_[stage.has_experts(i)].take();
    if (stage.layers() > 1) stash.next_gradient = ends_.take();
  } else {
    for (std::size_t i = 0; i < stash.blocks.size(); ++i) {
      BlockStash& block = stash.blocks[i];
      block.gradients = gradients_.take();
      block.mlp_gradients = mlp_gradients_[stage.has_experts(i)].take();
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
  for (std::size_t i = 0; i < stash.blocks.size(); ++i) {
    BlockStash& block = stash.blocks[i];
    const bool has_experts = stage.has_experts(i);
    give_if(block.gradients.output.count() > 0, gradients_, block.gradients);
    give_if(!block.mlp.tensors.empty(), mlps_[has_experts], block.mlp.tensors);
    give_if(!block.mlp_gradients.empty(), mlp_gradients_[has_experts], block.mlp_gradients);
    stash.routings.push_back(std::exchange(block.mlp.routing, {}));
    LayerStash& attention = block.kept.attention.output;
    give_if(recompute_ == Recompute::selective && !attention.empty(), attentions_, attention);
    blocks_.give(std::move(block));
  }
  stash.blocks.clear();
  if (stage.is_last()) heads_.give(std::exchange(stash.head, {}));
  give_if(stash.gradients.output.count() > 0, gradients_, stash.gradients);
  for (const bool has_experts : {false, true}) {
    LayerStash& own = stash.mlp_gradients[has_experts];
    give_if(!own.empty(), mlp_gradients_[has_experts], own);
  }
  for (Tensor* end : {&stash.next_gradient, &stash.head_gradient, &stash.embedding_gradient})
    give_if(end->count() > 0, ends_, *end);
}

namespace {

class HeldStashes {
 public:
  HeldStashes(int stages, const GptConfig& model, Recompute recompute)
      : stages_(stages), model_(model), recompute_(recompute) {}

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
  // Both are on their way at once; the backward pass has begun first.
  void run_pair(const Action& forward, const Action& backward) {
    const bool recomputes = recompute_ == Recompute::full;
    if (recomputes) {
      take_forward(backward, 1);
      if (backward.stage > 0) --now_.inputs;
    }
    take_backward(backward, 1);
    take_forward(forward, 1);
    if (recomputes) {
      if (forward.stage > 0) ++now_.inputs;
      note();
      take_forward(forward, -1);
    }
    if (backward.pass == Pass::input_gradient) return;
    take_backward(backward, -1);
    take_forward(backward, -1);
  }
  const StashPeaks& most() const { return most_; }

 private:
  int blocks_of(const Action& action) const {
    return layers_of_stage(model_.layers, stages_, action.stage).count;
  }
  // Of a stage's blocks.
  int blocks_with(const Action& action, bool experts) const {
    const StageLayers layers = layers_of_stage(model_.layers, stages_, action.stage);
    int blocks = 0;
    for (int layer = layers.first; layer < layers.first + layers.count; ++layer)
      if (model_.experts.in_layer(layer) == experts) ++blocks;
    return blocks;
  }
  void take_forward(const Action& action, int number) {
    now_.blocks += number * blocks_of(action);
    for (const bool experts : {false, true})
      now_.mlps[experts] += number * blocks_with(action, experts);
    if (action.stage == stages_ - 1) now_.heads += number;
    note();
  }
  // A whole backward pass goes from block to block with one set of gradients.
  void take_backward(const Action& action, int number) {
    const bool in_one_piece = action.pass == Pass::backward;
    const int blocks = blocks_of(action);
    now_.block_gradients += number * (in_one_piece ? 1 : blocks);
    for (const bool experts : {false, true}) {
      const int all = blocks_with(action, experts);
      now_.mlp_gradients[experts] += number * (in_one_piece ? std::min(all, 1) : all);
    }
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
    for (const bool experts : {false, true})
      for (ByMlp<int> StashPeaks::*field : {&StashPeaks::mlps, &StashPeaks::mlp_gradients})
        (most_.*field)[experts] = std::max((most_.*field)[experts], (now_.*field)[experts]);
  }

  int stages_;
  const GptConfig& model_;
  Recompute recompute_;
  StashPeaks now_, most_;
};

}  // namespace

StashPeaks stash_peaks(const Plan& plan, int rank) {
  const Recompute recompute = plan.stage_options().recompute;
  HeldStashes held(plan.schedule.stages, plan.model,
                   plan.recomputes_stages()            ? Recompute::full
                   : recompute == Recompute::selective ? Recompute::selective
                                                       : Recompute::none);
  const auto& actions = plan.schedule.by_rank[static_cast<std::size_t>(plan.place(rank, Axis::pp))];
  for (std::size_t i = 0; i < actions.size(); ++i)
    if (i + 1 < actions.size() && plan.is_pair(actions[i], actions[i + 1])) {
      held.run_pair(actions[i], actions[i + 1]);
      ++i;
    } else {
      held.run(actions[i]);
    }
  return held.most();
}

Count stash_bytes(const StashPeaks& peaks, const ActivationBytes& bytes, bool reaches_attention) {
  Count mlps = 0;
  for (const bool experts : {false, true})
    mlps += peaks.mlps[experts] * bytes.kept_of_mlp(experts) +
            peaks.mlp_gradients[experts] * total(bytes.mlp_gradients(experts));
  return peaks.blocks * bytes.kept_of_block() +
         peaks.block_gradients * total(bytes.block_gradients(reaches_attention)) + mlps +
         peaks.attentions * total(bytes.attention()) + peaks.heads * total(bytes.head()) +
         peaks.end_gradients * bytes.outer() + peaks.inputs * bytes.kept_input();
}

}  // namespace lockstep
