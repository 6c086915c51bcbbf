// How long a micro-batch's passes through one layer, the embedding and the head take on a rank, by
// what they consist of.
//
//   product    waves of tiles: tiles / multiprocessors, rounded up, each as long as its inner
//              dimension; or as its operands take to pass through memory
//   attention  fused: its FLOPs at a rate of its own; else two products and a softmax
//   others     the bytes that they read and write, at the memory's bandwidth
//   exchanges  see exchange_time.h
//
// Every kernel also takes the time of its launch. The numbers of kernels, and the bytes that each
// reads and writes for an element, are counted from Megatron-LM's layers in 16 bits. The forms are those of the SC'21 paper on
// Megatron-LM (arXiv:2104.04473) and of the vendor's guide to tile and wave quantisation.
#pragma once

#include "parallel/planner/arrangement.h"

namespace lockstep {

// Seconds of a pass, and its kernels.
struct PassCost {
  double at_peak = 0;       // products, at the peak of the hardware
  double sustained = 0;     // more, at the rate that a full wave sustains
  double quantisation = 0;  // more, because tiles and waves are not full, and for launches
  double memory_bound = 0;
  double issue = 0;  // waiting for the host, which issues kernels more slowly than they run
  double tensor = 0, context = 0;  // exposed exchanges of tp and cp
  double kernels = 0;

  double compute() const { return at_peak + sustained + quantisation + memory_bound + issue; }
  double total() const { return compute() + tensor + context; }
  PassCost& operator+=(const PassCost& other);
  PassCost operator*(double times) const;
};
PassCost operator+(PassCost a, const PassCost& b);

// Of one product of m x k with k x n, `batch` times.
PassCost product_cost(double m, double n, double k, double batch, bool fp8,
                      const ClusterSheet& cluster, const SoftwareProfile& profile);

struct PassCosts {
  PassCost forward;
  // Together the backward pass, with what recomputation adds.
  PassCost input_gradient, weight_gradient;

  PassCost backward() const { return input_gradient + weight_gradient; }
};

// Of one layer, and of what the first and the last stage have in addition to layers.
struct LayerCosts {
  PassCosts layer, embedding, head;
};
LayerCosts layer_costs(const Transformer& model, const Arrangement& arrangement,
                       const ClusterSheet& cluster, const SoftwareProfile& profile);

}  // namespace lockstep
