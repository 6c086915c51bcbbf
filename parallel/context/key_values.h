// How the queries of one group of ranks attend to the keys and values of all groups. A block is the
// keys and values of one group, next to each other: [rows, 2 kv_width]. There are c groups; each
// visits its own block first, then those of the groups before it.
//
//   ring.h      blocks travel around the ring while attention works on the one that is here
//   gather.h    an all-gather brings all blocks
#pragma once

#include <functional>

#include "models/backend.h"

namespace lockstep {

class KeyValues {
 public:
  // Labels for the traffic.
  static constexpr const char* label = "keys and values";
  static constexpr const char* gradient_label = "gradients of keys and values";

  virtual ~KeyValues() = default;
  // Calls attend(group, block) for every block, this group's first.
  using Attend = std::function<void(int group, const Matrix& block)>;
  virtual void forward(Backend& backend, const Matrix& own, const Attend& attend) = 0;
  // Calls attend(group, block, gradient) for every block, which adds to the block's gradient. Then
  // adds the gradients of `own` from all groups to `own_gradient`. Gradients have its type.
  using AttendBackward =
      std::function<void(int group, const Matrix& block, const Matrix& gradient)>;
  virtual void backward(Backend& backend, const Matrix& own, const Matrix& own_gradient,
                        const AttendBackward& attend) = 0;
};

// With one group there is nothing to exchange.
class OwnKeyValues final : public KeyValues {
 public:
  void forward(Backend&, const Matrix& own, const Attend& attend) override { attend(0, own); }
  void backward(Backend&, const Matrix& own, const Matrix& own_gradient,
                const AttendBackward& attend) override {
    attend(0, own, own_gradient);
  }
};

}  // namespace lockstep
