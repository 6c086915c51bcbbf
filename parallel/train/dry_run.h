// Runs one rank of a plan without storage and without the other ranks, on the device `none`, and
// checks its closed forms.
#pragma once

#include "collectives/transport/launch/launch.h"
#include "models/data/dataset.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/result.h"
#include "parallel/rank/training_rank.h"

namespace lockstep {

// One step of a rank with these micro-batches; their data need not exist.
void take_dry_step(TrainingRank& rank, const Plan& plan, std::span<const Batch> micro_batches);

// Trains on this rank alone: the same code as a training run, without data. Takes two steps,
// because buffers and buckets have their final size only in the second, which is the one counted.
// The result has one rank with its closed forms, but no losses or times. launch_alone() provides
// the context, on the device `none`. Throws Error (bad_input) for parameter servers, which have no
// closed forms before a run.
TrainResult dry_run(RankContext& context, const Plan& plan);

// Checks the tags of two steps on each of these ranks, one after the other, without data and
// without messages. Returns how many it checked: none of a plan without tags. Throws Error
// (wrong_result) for the first wrong one.
std::int64_t check_tags_of(const Plan& plan, const std::vector<int>& ranks);

}  // namespace lockstep
