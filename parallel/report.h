// Brings what each rank measured to rank 0 and sets it beside the closed forms.
#pragma once

#include "collectives/transport/launch.h"
#include "models/parameters.h"
#include "parallel/result.h"

namespace lockstep {

// Every rank calls it with its own record and the technique's closed forms for it. On rank 0
// `result` gains the ranks, the theory with what was measured, and the traces.
void collect(RankContext& context, const RankRecord& record, std::vector<TheoryRecord> theory,
             const Parameters& parameters, TrainResult& result);

}  // namespace lockstep
