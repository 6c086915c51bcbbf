// Local steps (DiLoCo): every replica takes H optimizer steps alone. Then the replicas exchange how far each has
// gone from the weights w that they had in common, and take an outer step from w by the mean of these differences.
// Its result are the new common weights, from which all go on. States of the inner optimizer stay where they are.
//
//   bytes sent per rank            2 (P - 1) / P * Psi * beta, once in H steps     P replicas
//   memory of a rank, more         Psi beta for w, Psi beta for the outer momentum
//
// In F fragments (streaming): fragment f, of F nearly equal parts of the weights, is exchanged after the steps that
// leave f H / F when divided by H, so that fewer bytes travel at once. With a delay, replicas go on for so many
// steps while a fragment travels; then theirs becomes mix * theirs + (1 - mix) * common.
//
// Douillard et al., "DiLoCo", 2023, and "Streaming DiLoCo with overlapping communication", 2025.
#pragma once

#include <memory>

#include "parallel/plan/terms.h"
#include "parallel/rank/strategy.h"

namespace lockstep {

// Whether the exchange of a fragment starts after `step` steps.
bool starts_exchange(const TrainOptions& options, int fragment, std::int64_t step);

// Checkpoints hold w and the outer momentum, which are the same on all replicas, and what each rank alone has.
// Values for a file are w.
std::unique_ptr<DataParallel> make_local_steps(RankContext& context, Communicator& replicas,
                                               const Plan& plan, Parameters& parameters,
                                               Backend& backend);

// Like ddp_terms(), for the step that `facts` names; by default one with an exchange.
Terms local_steps_terms(const Plan& plan, const ReplicaGroup& replicas,
                        const Parameters& parameters, const ReplicaFacts& facts, Moment moment);
// The memory of w and the outer momentum.
Terms::Held outer_states(const Plan& plan, const Parameters& parameters, const std::string& psi);

}  // namespace lockstep
