// A replay of a rank's allocations: takes its layers through a step without storage, and counts the
// workspace, for which there is no closed form.
#pragma once

#include <vector>

#include "models/data/dataset.h"
#include "models/ops/narrow_backend.h"
#include "models/ops/roofline_backend.h"
#include "parallel/plan/environment.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/terms.h"

namespace lockstep {

// Peak bytes of the widened copies that 16-bit data needs on the host: for each operand of a kernel,
// the largest one of a step, in f32. 0 for other types. Counts every token of the first stage's
// embedding as distinct.
Count narrow_workspace_bytes(const Plan& plan, int rank, bool multiplies_bf16);
// They are the workspace of a rank on the host. A device accounts for that of its own kernels.
Terms workspace_terms(const Plan& plan, int rank, const Environment& environment);

// Returns a batch of a rank with these rows of a step.
Batch dry_batch(const Plan& plan, int rank, const Share& rows, int step);
// Returns the micro-batches of a rank in a step. All tokens of each differ, if the vocabulary is
// large enough, so the embedding's gradient is as large as it can be.
std::vector<Batch> dry_batches(const Plan& plan, int rank, int step);

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

}  // namespace lockstep
