// The closed forms of a composition: the sum of those of its parts.
#pragma once

#include <vector>

#include "collectives/algorithm.h"
#include "models/parameters.h"
#include "parallel/mesh.h"
#include "parallel/options.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/result.h"

namespace lockstep {

inline constexpr const char* gradients_label = "gradients";
inline constexpr std::string_view gradients_algorithm = "ring",
                                  norm_algorithm = "recursive_doubling";

struct ComposedRank {
  const TrainOptions& options;
  const GptConfig& config;
  const Mesh& mesh;
  int rank;
  const LayerSplit& split;
  const Schedule& schedule;
  const Parameters& parameters;
  Traffic shared;  // of parameters that tensor-parallel ranks, or two stages, have in common
};
std::vector<TheoryRecord> composed_theory(const ComposedRank& rank);

}  // namespace lockstep
