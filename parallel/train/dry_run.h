// Runs one rank of a plan without storage and without the other ranks, on the device `none`, and
// checks its predictions.
#pragma once

#include <functional>
#include <vector>

#include "collectives/transport/launch/launch.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/result.h"
#include "parallel/rank/step_counter.h"

namespace lockstep {

// Takes two steps of a rank without data, and counts the second, because buffers and buckets have
// their final size only then. Calls before_step() when all ranks are about to begin one.
CountedStep count_dry_step(RankContext& context, TrainingRank& rank, const Plan& plan,
                           const std::function<void()>& before_step = {});

// Trains on this rank alone: the same code as a training run, without data. Counts one step. The
// result has one rank with its theory, but no losses or times. launch_alone() provides the context, on
// the device `none`. Throws Error (bad_input) for parameter servers, which have no closed forms before
// a run.
TrainResult dry_run(RankContext& context, const Plan& plan);

// Checks the tags of two steps on each of these ranks, one after the other, without data and
// without messages. Returns how many it checked: none of a plan without tags. Throws Error
// (wrong_result) for the first wrong one.
std::int64_t check_tags_of(const Plan& plan, const std::vector<int>& ranks);

}  // namespace lockstep
