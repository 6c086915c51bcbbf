// Makes a plan from options, and checks it.
#pragma once

#include "parallel/plan/plan.h"

namespace lockstep {

// Like plan_of() without a model, but for this model, which need not be a preset or a file. It is
// not checked.
Plan plan_of(const TrainOptions& options, int ranks, const GptConfig& model);

// Fills in how many ranks divide experts, by default all replicas or one; and what tokens are taken to
// choose. Throws like expert_choices().
void complete_experts(Plan& plan, bool all_replicas);
// Checks the model, and fills in what adapters take from --lora-init. Throws Error (bad_input) naming
// the option that does not fit, or the part of the plan that does not train adapters.
void complete_lora(Plan& plan);
// Throws Error (bad_input) naming the rule that the division of a model's experts breaks.
void check_experts(const Plan& plan);
// Throws Error (bad_input) if the balancing loss needs choices that the schedule makes too late.
void check_balance_level(const Plan& plan);
// A rule that steps whole matrices needs their states and gradients on the ranks that compute.
void check_optimizer(const Plan& plan);

// How replicas shard, offload and exchange.
void check_data(const Plan& plan);
// How they compress gradients; fills in the type that bf16 stands for.
void complete_exchange(Plan& plan);
// Throws Error (bad_input) naming what does not go with replicas that take their steps alone.
void check_local_steps(const Plan& plan);

}  // namespace lockstep
