// Lowering passes that add the collectives of data parallelism to a schedule, as PyTorch does.
//
//   plain data parallelism     0F0 0F1 0B0 0B1 0REDUCE_GRAD
//   sharded parameters         0UNSHARD 0F0 0F1 0B0 0B1 0REDUCE_GRAD 0RESHARD
//
// Both throw Error (bad_input) if the schedule already has such actions.
#pragma once

#include "parallel/pipeline/schedules/schedule.h"

namespace lockstep {

// Adds reduce_gradients for every stage, immediately after the action or block that completes the
// stage's gradients: its last backward pass or weight gradient.
Schedule with_gradient_reduction(const Schedule& schedule);

// Adds reduce_gradients as above, then unshard and reshard. Before every action or block, the rank
// reshards the stages that are not among its next `most_unsharded_stages` and unshards those that
// are, in the order of their next use; so it prefetches while it computes. A block of two stages
// needs both, even where the limit is 1. At the end, every stage is resharded.
Schedule with_sharding(const Schedule& schedule, int most_unsharded_stages = 3);

}  // namespace lockstep
