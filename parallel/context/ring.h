// Ring attention: blocks of keys and values travel to the right. In step k a group works on the block
// of group r - k, while it already receives the next one. Liu, Zaharia and Abbeel, "Ring attention",
// 2023.
//
// In backward the blocks travel once more, and their gradients follow one step behind: each group
// adds its part and sends the sum on. The last one sends it home. A gradient that starts with the
// first other group makes c - 1 hops; one that starts at home, as its block does, makes c.
//
//   B elements in a block, c groups      messages      elements
//   forward    blocks                    c - 1         (c - 1) B
//   backward   blocks                    c - 1         (c - 1) B
//              gradients                 c - 1 or c    (c - 1) B or c B, in the statistics' type
#pragma once

#include "collectives/algorithm.h"
#include "parallel/context/exchange.h"
#include "parallel/context/key_values.h"

namespace lockstep {

class Ring final : public KeyValues {
 public:
  Ring(Exchange& exchange, int groups, int group, bool returns_all_hops)
      : exchange_(exchange), groups_(groups), group_(group), returns_all_hops_(returns_all_hops) {}

  void forward(Backend& backend, const Matrix& own, const Attend& attend) override;
  void backward(Backend& backend, const Matrix& own, const Matrix& own_gradient,
                const AttendBackward& attend) override;

  static Traffic traffic(Count block, int groups);
  static Traffic gradient_traffic(Count block, int groups, bool returns_all_hops);
  // Elements of the memory for blocks, and for their gradients.
  static Count block_memory(Count block) { return 2 * block; }
  static Count gradient_memory(Count block) { return 3 * block; }

 private:
  // Sends to the right, and receives from the left.
  std::optional<Stream::Handle> hop(const char* which, Slice leaving, Slice arriving);
  // Calls visit(step, group, block) for each block, while the next one arrives.
  template <typename Visit>
  void for_each_block(Backend& backend, const Matrix& own, Visit visit);

  Exchange& exchange_;
  int groups_, group_;
  bool returns_all_hops_;
  Tensor block_, next_block_, gradient_, leaving_gradient_, arriving_gradient_;
};

}  // namespace lockstep
