// How long a step of a plan takes on a cluster, with which software, and what the time goes into.
//
//   step = replay of the pipeline + exposed exchange of gradients + tied embedding + update
//
// ZeRO-3 gathers parameters and scatters gradients once a micro-batch; a part of the shorter of
// compute and exchange is hidden:
//
//   step = m (C + X - overlap min(C, X)) + update
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "parallel/planner/arrangement.h"
#include "parallel/planner/step_memory.h"

namespace lockstep {

// One part of a step in seconds: the parts sum to the step.
struct StepPart {
  std::string_view name;
  double seconds = 0;
  bool is_compute = false;  // kernels, or waiting for them to be issued
};

struct StepPrediction {
  double seconds = 0;
  double uncertainty = 0;  // as a fraction of the seconds
  double least() const { return seconds * std::max(0.0, 1 - uncertainty); }
  double most() const { return seconds * (1 + uncertainty); }
  std::vector<StepPart> parts;
  // FLOP/s of a GPU: those that the model needs, and with what recomputation adds.
  double model_flops_per_second = 0, hardware_flops_per_second = 0;
  double tokens_per_second = 0;
  std::vector<RankMemory> memory;
  double largest_memory() const;  // of all ranks, in bytes
  std::string_view verdict;       // of the largest rank: "fits", "tight" or "does not fit"
};

// Up to this part of the memory a plan fits: the rest is for the context, other libraries and
// fragments.
inline constexpr double fitting_part = 0.85;
// "fits", "tight" or "does not fit".
std::string_view memory_verdict(double bytes, double limit);

// FLOPs of the products of a step, with what full recomputation adds; attention as if it were not
// causal. 96 B s l h^2 (1 + s / 6h + V / 16 l h) for GPT-2 recomputed in full (arXiv:2104.04473).
double hardware_flops(const Transformer& model, const Arrangement& arrangement);

StepPrediction predict_step(const Transformer& model, const Arrangement& arrangement,
                            const ClusterSheet& cluster, const SoftwareProfile& profile);

}  // namespace lockstep
