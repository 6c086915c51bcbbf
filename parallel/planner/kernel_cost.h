// How long kernels take on a GPU: matrix products in waves of tiles, and kernels bound by memory.
//
//   product    waves of tiles: tiles / multiprocessors, rounded up, each as long as its inner
//              dimension, and longer if rows are not aligned; or as its operands take to pass
//              through memory
//   others     the bytes that they read and write, at the memory's bandwidth
//
// Every kernel also takes the time of its launch. The forms are those of the vendor's guide to tile
// and wave quantisation. In addition to the GPU, the host has a clock of its own: it issues one kernel after
// another, ahead of the GPU or behind it.
#pragma once

#include <algorithm>

#include "parallel/planner/cluster_sheet.h"
#include "parallel/planner/software_profile.h"

namespace lockstep {

// Of an activation or a parameter in bf16 or fp16.
inline constexpr double bytes_of_16_bit = 2;

// Seconds of a pass, and its kernels.
struct PassCost {
  double at_peak = 0;       // products, at the peak of the hardware
  double sustained = 0;     // more, at the rate that a full wave sustains
  double quantisation = 0;  // more, because tiles and waves are not full, and for launches
  double memory_bound = 0;
  double tensor = 0, context = 0, expert = 0;  // exposed exchanges of tp, cp and ep
  double kernels = 0;
  double issue = 0;  // of the host, which issues the kernels

  double compute() const { return at_peak + sustained + quantisation + memory_bound; }
  double total() const { return compute() + tensor + context + expert; }
  // From when the host begins to issue its kernels, if the GPU then waits for them.
  double alone() const { return std::max(total(), issue); }
  PassCost& operator+=(const PassCost& other);
  PassCost operator*(double times) const;
};
PassCost operator+(PassCost a, const PassCost& b);

// Kernels in a row, on two clocks, in seconds. They are done `busy` after the GPU is free for them, and
// not before `delay` after the host, which takes `issue`, begins to issue them.
struct IssuedKernels {
  double busy = 0, delay = 0, issue = 0;
};
// Of kernels that are all alike.
IssuedKernels issued(const PassCost& cost);
IssuedKernels operator+(const IssuedKernels& first, const IssuedKernels& then);

// One product of m x k with k x n, or a batch of them in one kernel; those of several experts are
// grouped. Rows in memory have the lengths n and k; or m and n, if the product sums over tokens.
struct ProductShape {
  double m = 0, n = 0, k = 0, batch = 1;
  bool fp8 = false, is_grouped = false, sums_tokens = false;
};
PassCost product_cost(const ProductShape& shape, const ClusterSheet& cluster,
                      const SoftwareProfile& profile);

// Kernels that read and write so many bytes in all, at this part of the memory's bandwidth.
PassCost memory_cost(double bytes, double kernels, double efficiency, const ClusterSheet& cluster,
                     const SoftwareProfile& profile);

}  // namespace lockstep
