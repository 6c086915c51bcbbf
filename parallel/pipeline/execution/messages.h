// How many tensors between stages a rank holds at once: arriving, leaving, or going from one of its
// stages to the next. Their memory is reused, so the peak count determines the cost.
#pragma once

#include <vector>

#include "parallel/pipeline/execution/executor.h"

namespace lockstep {

struct MessageUse {
  int stages = 1;           // of the pipeline
  std::vector<int> own;     // stages of this rank
  bool recomputes = false;  // whole stages
  bool validates = false;
};
struct MostMessages {
  int in_training = 0, in_validation = 0;
};
MostMessages most_messages(const RankProgram& program, const MessageUse& use);

}  // namespace lockstep
