// How many tensors between stages a rank holds at once: those that arrive, leave, or pass from one
// of its stages to the next. The memory of each is used again, so their most is what it costs.
#pragma once

#include <vector>

#include "parallel/pipeline/execution/executor.h"

namespace lockstep {

struct MessageUse {
  int stages = 1;           // of the pipeline
  std::vector<int> own;     // of them, this rank's
  bool recomputes = false;  // whole stages
  bool validates = false;
};
int most_messages(const RankProgram& program, const MessageUse& use);

}  // namespace lockstep
