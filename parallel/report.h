// Brings what each rank measured to rank 0 and sets it beside the closed forms.
#pragma once

#include "collectives/transport/launch.h"
#include "parallel/result.h"

namespace lockstep {

// Every rank calls it with its own record, and its closed forms next to what was measured. On rank
// 0 `result` gains the ranks, the theory and the traces.
void collect(RankContext& context, const RankRecord& record,
             const std::vector<TheoryRecord>& theory, TrainResult& result);

// Throws Error (wrong_result) naming the step when its loss or gradient norm is no number, but for
// a step that was skipped and may go well with a smaller loss scale.
void check_finite(const StepRecord& record, const Communicator& world);

// What one rank did where ranks are not in step.
struct OwnRun {
  std::vector<StepRecord> steps;  // `seconds` since the run began
  std::vector<UpdateRecord> updates;
  std::vector<LostRank> lost;  // itself, or nobody
};

// Every rank calls it with what it did. On rank 0 `result` gains the updates, the lost ranks, and
// the steps: losses and norms are the mean of the ranks', a step has ended when the last of them
// has taken it.
void collect_own_runs(Communicator& world, const OwnRun& own, TrainResult& result);

}  // namespace lockstep
