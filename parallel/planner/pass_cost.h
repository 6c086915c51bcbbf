// How long a micro-batch's passes through one layer, the embedding and the head take on a rank, by
// what they consist of: products and kernels bound by memory (kernel_cost.h), and
//
//   attention  fused: its FLOPs at a rate of its own; else two products and a softmax
//   experts    sorted rows, grouped products with equally many rows for each expert
//   exchanges  see exchange_time.h
//
// The numbers of kernels, and the bytes that each reads and writes for an element, are counted from
// Megatron-LM's layers in 16 bits (arXiv:2104.04473).
#pragma once

#include "parallel/planner/arrangement.h"
#include "parallel/planner/kernel_cost.h"

namespace lockstep {

struct PassCosts {
  PassCost forward;
  // Together the backward pass, with what recomputation adds.
  PassCost input_gradient, weight_gradient;

  PassCost backward() const { return input_gradient + weight_gradient; }
  PassCosts& operator+=(const PassCosts& other);
  PassCosts operator*(double times) const;
};

// Of one layer without and with experts, and of what the first and the last stage have in addition to
// layers.
struct LayerCosts {
  PassCosts layer, expert_layer, embedding, head;

  PassCosts of(const LayerKinds& layers) const;
};
LayerCosts layer_costs(const Transformer& model, const Arrangement& arrangement,
                       const ClusterSheet& cluster, const SoftwareProfile& profile);

}  // namespace lockstep
