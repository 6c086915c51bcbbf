// From the scores of a router to what its weights and balancing losses are made of.
#pragma once

#include <span>
#include <vector>

#include "models/expert_config.h"

namespace lockstep {

using Numbers = std::span<const double>;

// One row of scores[N, E].
inline Numbers of_token(Numbers scores, Count token, Count experts) {
  return scores.subspan(static_cast<std::size_t>(token * experts),
                        static_cast<std::size_t>(experts));
}

// Of one token: the softmax of its scores, or their sigmoids.
std::vector<double> affinities(Numbers scores, RouterWeights kind);

}  // namespace lockstep
