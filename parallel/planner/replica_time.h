// What a step takes after its passes: exchanges among replicas, and the update.
#pragma once

#include "parallel/planner/arrangement.h"
#include "parallel/planner/pass_cost.h"
#include "parallel/planner/pipeline_time.h"
#include "parallel/planner/step_memory.h"

namespace lockstep {

// What is trained where, and the costs of its layers.
struct StepInputs {
  const Transformer& model;
  const Arrangement& arrangement;
  const ClusterSheet& cluster;
  const SoftwareProfile& profile;
  const LayerCosts& costs;
};

// Seconds that the replicas' exchange of gradients, and of updated parameters, adds to a step: for a
// rank with these layers and parameters. A part of it is overlapped with the last passes, which slow
// hosts lengthen by `waits` at most.
double exposed_exchange(const StepInputs& step, const LayerKinds& layers,
                        const RankParameters& parameters, const HostWaits& waits);
// Under ZeRO-3, of one micro-batch: gathers for both passes and scattered gradients, less what is
// hidden behind `compute` seconds.
double exposed_sharded_exchange(const StepInputs& step, const RankParameters& parameters,
                                double compute);
// The all-reduce of a tied embedding between the first and the last stage.
double tied_embedding_seconds(const StepInputs& step);
double update_seconds(const StepInputs& step, const RankParameters& parameters);

}  // namespace lockstep
