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
// the largest one of a step, in f32. 0 for other types. Counts every token of the first stage's
// embedding as distinct.
Count narrow_workspace_bytes(const Plan& plan, int rank, bool multiplies_bf16);

// Returns the micro-batches of a rank in a step. All tokens of each differ, if the vocabulary is
// large enough, so the embedding's gradient is as large as it can be.
std::vector<Batch> dry_batches(const Plan& plan, int rank, int step);

// One step of a rank with these micro-batches; their data need not exist.
void take_dry_step(TrainingRank& rank, const Plan& plan, std::span<const Batch> micro_batches);

struct NoKernels {
  RooflineBackend no_kernels{{}, [](double) {}};
};
// A backend that computes nothing, but takes the workspace of a processor that multiplies bf16, so
// that a plan is the same on every machine.
class DryBackend final : private NoKernels, public NarrowBackend {
 public:
  explicit DryBackend(Ledger& ledger, bool multiplies_bf16 = true)
      : NarrowBackend(no_kernels, ledger, multiplies_bf16) {}
};

// Trains on this rank alone: the same code as a training run, without data. Takes two steps,
// because buffers and buckets have their final size only in the second, which is the one counted.
// The result has one rank with its closed forms, but no losses or times. launch_alone() provides
// the context, on the device `none`. Throws Error (bad_input) for parameter servers, which have no
// closed forms before a run.
TrainResult dry_run(RankContext& context, const Plan& plan);

}  // namespace lockstep
