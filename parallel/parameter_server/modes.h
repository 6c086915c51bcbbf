// The two ways in which servers take pushes.
#pragma once

#include "parallel/technique.h"

namespace lockstep {

std::unique_ptr<Technique> make_bsp(RankContext& context, Gpt& model, const TrainOptions& options);
// asp, and ssp with a bound.
std::unique_ptr<Technique> make_asp(RankContext& context, Gpt& model, const TrainOptions& options);

}  // namespace lockstep
