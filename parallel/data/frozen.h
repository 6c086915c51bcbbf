// Replicas with parameters that are not trained: each holds the same values, and nothing is exchanged
// after they are loaded. They have no gradients, no states and no part of the norm.
#pragma once

#include <memory>

#include "parallel/rank/strategy.h"

namespace lockstep {

std::unique_ptr<DataParallel> make_frozen(RankContext& context, Communicator& replicas,
                                          Parameters& parameters);

}  // namespace lockstep
