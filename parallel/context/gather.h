// All-gather context parallelism: a group gathers the keys and values of all groups, and attends to
// one block after another. Its own comes first, while the others arrive. Backward gathers them again,
// and reduce-scatters their gradients. Dubey et al., "The Llama 3 herd of models", 2024, section
// 3.3.2.
//
//   B elements in a block, c groups      messages    elements
//   forward    all-gather                c - 1       (c - 1) B
//   backward   all-gather                c - 1       (c - 1) B
//              reduce-scatter            c - 1       (c - 1) B, in the statistics' type
//
// The same traffic as a ring's, but memory for c blocks instead of 2, and waiting at the end of
// backward.
#pragma once

#include "collectives/algorithm.h"
#include "parallel/context/exchange.h"
#include "parallel/context/key_values.h"

namespace lockstep {

class Gather final : public KeyValues {
 public:
  Gather(Exchange& exchange, int groups, int group)
      : exchange_(exchange), groups_(groups), group_(group) {}

  void forward(Backend& backend, const Matrix& own, const Attend& attend) override;
  void backward(Backend& backend, const Matrix& own, const Matrix& own_gradient,
                const AttendBackward& attend) override;

  static Traffic traffic(Count block, int groups, int group);
  static Traffic gradient_traffic(Count block, int groups, int group);
  // Elements of the memory for blocks, and as many for their gradients.
  static Count block_memory(Count block, int groups) { return groups * block; }

 private:
  // Calls visit(group, block) for each block.
  template <typename Visit>
  void for_each_block(Backend& backend, const Matrix& own, Visit visit);

  Exchange& exchange_;
  int groups_, group_;
  Tensor blocks_, gradients_;
};

}  // namespace lockstep
