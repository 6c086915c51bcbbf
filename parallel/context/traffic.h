// The closed forms of context parallelism for one rank: see ring.h, gather.h and ulysses.h.
#pragma once

#include <string>
#include <vector>

#include "collectives/algorithm.h"
#include "models/gpt_stage.h"
#include "parallel/context/split.h"

namespace lockstep {

struct ContextWork {
  Count heads, kv_heads, head_size;  // of this rank, outside of the exchanges
  const ContextSplit& split;
  Recompute recompute;
  DType dtype;
  std::vector<Count> rows;  // of each micro-batch, on this rank
  int layers = 0;
};

struct ContextTraffic {
  std::string label;
  Traffic traffic;
  DType dtype;
};
// Of an optimizer step.
std::vector<ContextTraffic> context_traffic(const ContextWork& work);
// Memory in which ranks exchange blocks and heads, for the largest micro-batch.
Count context_memory_bytes(const ContextWork& work);
// The formula of the bytes that a layer sends for a micro-batch.
std::string context_formula(const ContextSplit& split);

}  // namespace lockstep
