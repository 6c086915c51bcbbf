// Runs one rank of a plan without storage and without the other ranks, on the device `none`.
// Measures quantities that have no closed form, and checks those that have one.
#pragma once

#include "collectives/transport/launch.h"
#include "models/dataset.h"
#include "models/narrow_backend.h"
#include "models/roofline_backend.h"
#include "parallel/plan.h"
#include "parallel/result.h"
#include "parallel/training_rank.h"

namespace lockstep {

// Peak bytes of the widened copies that 16-bit data needs on the host: for each operand of a kernel,
// the largest one of a step, in f32. 0 for other types. It counts every token of the first stage's
// embedding as a different one.
Count narrow_workspace_bytes(const Plan& plan, int rank, bool multiplies_bf16);

// The micro-batches of a rank in a step. The tokens of each are all different, if the vocabulary has
// as many: no gradient of the embedding is smaller.
std::vector<Batch> dry_batches(const Plan& plan, int rank, int step);

// One step of a rank with these micro-batches; their data need not exist.
void take_dry_step(TrainingRank& rank, const Plan& plan, std::span<const Batch> micro_batches);

struct NoKernels {
  RooflineBackend no_kernels{{}, [](double) {}};
};
// A backend that computes nothing, and takes the workspace of one on a processor that multiplies bf16:
// a plan is the same wherever it is made.
class DryBackend final : private NoKernels, public NarrowBackend {
 public:
  explicit DryBackend(Ledger& ledger, bool multiplies_bf16 = true)
      : NarrowBackend(no_kernels, ledger, multiplies_bf16) {}
};

// Trains on this rank alone: the code of a training, with data that do not exist. Takes two steps,
// because buffers and buckets have their final size in the second; counters are of that one. The
// result has one rank with its closed forms, and neither losses nor times. launch_alone() provides
// the context, on the device `none`. Throws Error (bad_input) for parameter servers, which have no
// closed forms before a run.
TrainResult dry_run(RankContext& context, const Plan& plan);

}  // namespace lockstep
