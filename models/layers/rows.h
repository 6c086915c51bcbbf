// The rows of one micro-batch: its tokens, sequence by sequence.
#pragma once

#include "collectives/base/dtype.h"

namespace lockstep {

struct Rows {
  Count sequences = 0, length = 0;
  Count first = 0;         // of them in the global batch
  std::int64_t step = -1;  // below 0 outside of training: nothing is dropped, targets are sharp

  Count count() const { return sequences * length; }
  bool in_training() const { return step >= 0; }
};

}  // namespace lockstep
