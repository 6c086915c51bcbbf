// Serial training: one rank does everything. The reference that every technique must reproduce.
#pragma once

#include "parallel/technique.h"

namespace lockstep {

void check_serial(const TrainOptions& options, int ranks);
std::unique_ptr<Technique> make_serial(RankContext& context, Gpt& model,
                                       const TrainOptions& options);

}  // namespace lockstep
