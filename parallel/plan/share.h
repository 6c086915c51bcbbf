// How a batch is divided between ranks.
#pragma once

#include "collectives/base/slice.h"

namespace lockstep {

// Sequences of the global batch that one replica of the model computes, or one of its micro-batches.
struct Share {
  int first = 0;
  int count = 0;

  // Returns part i of `parts` nearly equal ones. Gradients are sums over targets divided by the
  // number of targets in the whole batch, so parts of unequal size are weighted correctly.
  Share part(int i, int parts) const {
    const Parts part(count, parts);
    return {.first = first + static_cast<int>(part.offset(i)), .count = static_cast<int>(part[i])};
  }
};

}  // namespace lockstep
