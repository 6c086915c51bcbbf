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

// Parameters of one rank of tp with so many layers, and the embedding; the head, with a copy of a
// tied embedding. Without a pipeline the first rank is the last.
double first_rank_parameters(const Transformer& model, const Arrangement& arrangement,
                             double layers);
double last_rank_parameters(const Transformer& model, const Arrangement& arrangement,
                            double layers);
// Parameters of one rank of tp with these stages.
double rank_parameters(const Transformer& model, const Arrangement& arrangement,
                       const std::vector<int>& stages);

// Bytes that a layer keeps for the backward pass of one micro-batch, without recomputation.
double layer_activation_bytes(const Transformer& model, const Arrangement& arrangement,
                              const SoftwareProfile& profile);

// Bytes of one rank that has so many parameters, keeps so many bytes of micro-batches in flight, and
// has the last stage or not.
RankMemory rank_memory(const Transformer& model, const Arrangement& arrangement,
                       const SoftwareProfile& profile, double parameters, double in_flight,
                       bool is_last);
// Bytes that one layer keeps of a micro-batch, with the plan's recomputation.
double kept_layer_bytes(const Transformer& model, const Arrangement& arrangement,
                        const SoftwareProfile& profile);

// The stages of each rank along pp.
std::vector<std::vector<int>> stages_by_rank(const Schedule& schedule);

}  // namespace lockstep
