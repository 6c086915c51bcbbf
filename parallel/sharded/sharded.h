// Sharded data parallelism: ZeRO's stages and FSDP. The ranks divide what plain data parallelism
// holds P times: the optimizer's states, the gradients, the parameters. Closed forms: sharding.h.
//
// Every unit's flat buffer is cut into P shards. Backward leaves a rank's own shard of the summed
// gradients (reduce-scatter), the optimizer updates this shard of the parameters, and an all-gather
// makes them whole again: after the step (stages 1 and 2), or before each use (stage 3).
//
// Choose the lowest stage whose memory suffices: 1 and 2 send as much as ddp, 3 sends 1.5 times as
// much for each micro-batch.
#pragma once

#include "parallel/rank/rank_model.h"
#include "parallel/rank/strategy.h"
#include "parallel/sharded/sharding.h"

namespace lockstep {

// The strategy for a set of the model's parameters, which the ranks of `data` also have. All arguments
// must outlive it.
std::unique_ptr<DataParallel> make_sharded(RankContext& context, Communicator& data,
                                           const Plan& plan, RankModel& model, ParameterSet set,
                                           Backend& backend);

}  // namespace lockstep
