#include "parallel/predict/needed_bytes.h"

#include <algorithm>

#include "parallel/predict/predict.h"

namespace lockstep {

using enum Axis;

double needed_bytes(const Plan& plan, bool has_all_ranks) {
  double bytes = 0;
  AlongAxes place(0);
  for (place[pp] = 0; place[pp] < plan.length(pp); ++place[pp]) {
    double own = 0;
    const Prediction rank = predict_replica(plan, plan.mesh.rank_at(place), {});
    // Other uses peak at other times.
    for (const MemoryUse use : {MemoryUse::parameters, MemoryUse::gradients, MemoryUse::optimizer,
                                MemoryUse::activations})
      if (const auto& figure = rank.peak_bytes[static_cast<std::size_t>(use)])
        own += static_cast<double>(figure->value);
    bytes = has_all_ranks ? bytes + own * plan.ranks / plan.length(pp) : std::max(bytes, own);
  }
  return bytes;
}

}  // namespace lockstep
