// Distributed data parallel whose optimizer steps during backward: as soon as a unit's gradients are
// complete, they are all-reduced, the unit takes its step, and another unit gets their memory. So the
// gradients of all layers never exist at once.
//
//   bytes sent per rank and step   2 (P - 1) / P * Psi * beta      as ddp, whose buckets are the units
//   gradients held                 (Psi_ends + Psi_block) beta, where blocks are equal; with a second block,
//                                  which backward fills while the first one is summed in the background
//   ddp                            Psi beta
//
// The ends of a model, its embedding and its last norm, are held from the beginning of backward: the
// head, which is tied to the embedding, adds to its gradients first, the embedding last.
//
// Lv et al., "Full parameter fine-tuning for large language models with limited resources" (LOMO), 2023;
// Zhao et al., "GaLore", 2024, section 4.4.
#pragma once

#include <memory>
#include <vector>

#include "parallel/data/bucket.h"
#include "parallel/plan/terms.h"
#include "parallel/rank/strategy.h"

namespace lockstep {

std::unique_ptr<DataParallel> make_in_backward(RankContext& context, Communicator& replicas,
                                               const Plan& plan, RankModel& model, ParameterSet set,
                                               Backend& backend);

// The units of a set of parameters as buckets, in the order in which backward completes them.
std::vector<Bucket> unit_buckets(const RankModel& model, ParameterSet set);

// Like ddp_terms().
Terms in_backward_terms(const Plan& plan, const RankModel& model, ParameterSet set,
                        const ReplicaFacts& facts, Moment moment);
// The memory of gradients: a replay of the buffers that units take and give back.
Terms::Held gradients_in_backward(const Plan& plan, const RankModel& model, ParameterSet set);

}  // namespace lockstep
