// What the ranks of each pipeline rank hold at most during a step, in bytes.
//
//   states        parameters, gradients and the optimizer's states, divided among the replicas by
//                 zero's stage
//   activations   of each micro-batch in flight, tensor by tensor (arXiv:2205.05198), in the order
//                 of the rank's own actions; with full recomputation a layer's input, and one layer
//   workspace     the logits, and the gradients that a layer's backward pass makes
#pragma once

#include <vector>

#include "parallel/planner/arrangement.h"

namespace lockstep {

inline constexpr double gigabyte = 1e9;

struct RankMemory {
  int rank = 0;  // along pp
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0, communication = 0,
         workspace = 0;

  double total() const {
    return parameters + gradients + optimizer + activations + communication + workspace;
  }
};

// By rank along pp.
std::vector<RankMemory> step_memory(const Transformer& model, const Arrangement& arrangement,
                                    const SoftwareProfile& profile, const Schedule& schedule);

// Parameters of one rank: those of its routed experts have replicas of their own.
struct RankParameters {
  double shared = 0, of_experts = 0;
  double all() const { return shared + of_experts; }
};
// Of a rank with these layers, with the first stage or not, and with the last one or not. A tied
// head has a copy of the embedding, if this is on another rank.
RankParameters rank_parameters(const Transformer& model, const Arrangement& arrangement,
                               const LayerKinds& layers, bool has_first, bool has_last);
// With these stages.
RankParameters rank_parameters(const Transformer& model, const Arrangement& arrangement,
                               const std::vector<int>& stages);

// Bytes that a layer keeps for the backward pass of one micro-batch, without recomputation.
double layer_activation_bytes(const Transformer& model, const Arrangement& arrangement,
                              const SoftwareProfile& profile, bool has_experts = false);

// Bytes of one rank that has these parameters, keeps so many bytes of micro-batches in flight, and
// has the last stage or not.
RankMemory rank_memory(const Transformer& model, const Arrangement& arrangement,
                       const SoftwareProfile& profile, const RankParameters& parameters,
                       double in_flight, bool is_last);
// Bytes that a stage keeps of a micro-batch, with the plan's recomputation.
double kept_stage_bytes(const Transformer& model, const Arrangement& arrangement,
                        const SoftwareProfile& profile, const LayerKinds& layers);

// The stages of each rank along pp.
std::vector<std::vector<int>> stages_by_rank(const Schedule& schedule);

}  // namespace lockstep
