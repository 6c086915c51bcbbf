// Every plan that a search considers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/planner/search.h"

namespace lockstep {

// The lengths of ep that divide the experts and the ranks of a stage, in order; 1 without experts.
std::vector<int> expert_lengths(const Transformer& model, int ranks);

// Micro-batches have up to 64 sequences, cp and etp are powers of two, and a rank has up to 16 stages, in
// the schedules that the options name, as far as these have a closed form of their memory. Stages come first only where that
// puts all of them into a node.
//
// Calls take(plan) for each plan whose lengths fit the model and the GPUs, without layers_per_stage,
// and reject(reason) for each other one. Choices that another always beats are left out: sequence
// parallelism without tp, zero 0 with replicas.
void for_each_plan(const Transformer& model, const ClusterSheet& cluster,
                   const SoftwareProfile& profile, const SearchOptions& options,
                   const std::function<void(const Arrangement&)>& take,
                   const std::function<void(const std::string&)>& reject);

}  // namespace lockstep
