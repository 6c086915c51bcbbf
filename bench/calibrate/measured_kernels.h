// Measures the kernels of a model on this machine: single operations of one rank, in the code and at
// the shapes of every technique, without the other ranks.
#pragma once

#include <functional>
#include <vector>

#include "bench/calibrate/machine_profile.h"
#include "parallel/plan/plan.h"

namespace lockstep {

struct KernelShapes {
  // Model, batch, sequence length and type; the technique is replaced.
  TrainOptions training;
  std::vector<int> ranks;  // over which techniques divide the work
};

// The plans whose ranks make these calls: one rank with 1, 2, 4, ... sequences at once, and each
// technique over each number of ranks that can divide the model.
std::vector<Plan> plans_of(const KernelShapes& shapes);

// Adds kernels, and copies, reductions and conversions of 1 KiB to `most_bytes`. On the host, they are
// measured on one rank alone, on as many at the same time as the machine has cores, and on twice as many,
// which take turns; on a GPU, on one rank. Calls progress(share) from time to time.
void measure_kernels(MachineProfile& profile, const KernelShapes& shapes, Count most_bytes,
                     const std::function<void(double)>& progress);
void measure_kernels_of_gpu(MachineProfile& profile, Device& gpu, const KernelShapes& shapes,
                            Count most_bytes, const std::function<void(double)>& progress);

}  // namespace lockstep
