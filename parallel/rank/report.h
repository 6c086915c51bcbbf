// Collects each rank's measurements on rank 0, next to what was predicted.
#pragma once

#include "collectives/transport/launch/launch.h"
#include "parallel/plan/result.h"

namespace lockstep {

// Every rank calls it with its own record and theory. On rank 0, adds the ranks, the theory
// and the traces to `result`.
void collect(RankContext& context, const RankRecord& record,
             const std::vector<TheoryRecord>& theory, TrainResult& result);

// Throws Error (wrong_result) naming the step if its loss or gradient norm is not finite. The norm
// need not be if the step was skipped and may succeed with a smaller loss scale, down to
// `smallest_scale`.
void check_finite(const StepRecord& record, double smallest_scale, const Communicator& world);
// The same for a loss on the validation tokens.
void check_finite(const ValidationRecord& record, const Communicator& world);

// The run of one rank in an asynchronous mode.
struct OwnRun {
  std::vector<StepRecord> steps;  // `seconds` since the run began
  std::vector<UpdateRecord> updates;
  std::vector<LostRank> lost;  // this rank, if it failed
};

// Every rank calls it with its run. On rank 0, adds the updates, the lost ranks and the steps to
// `result`: losses and norms are means over ranks, and a step ends when the last rank has taken it.
void collect_own_runs(Communicator& world, const OwnRun& own, TrainResult& result);

}  // namespace lockstep
