// Sums of buckets over the ranks that have the same parameters, as the plan says: all-reduced in the type of the
// gradients or in another one, or compressed; and the closed forms of these sums.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/all_reduce/all_reduce.h"
#include "models/optimizers/whole_matrices.h"
#include "parallel/data/bucket.h"
#include "parallel/exchange/compressed_sum.h"
#include "parallel/plan/environment.h"
#include "parallel/plan/terms.h"
#include "parallel/rank/gradient_exchange.h"

namespace lockstep {

// The steps whose gradients are summed as they are although the plan compresses them: those of the warm-up,
// and those in which GaLore chooses subspaces. Numbered from 0.
class WholeSteps {
 public:
  explicit WholeSteps(const Plan& plan);
  bool has(std::int64_t step) const;
  // Whether a run has one of them.
  bool any_in(const ReplicaFacts::Steps& run) const;
  // A run that ends with its first other step, or has one step if there is none. It begins with the first
  // period, or after the warm-up.
  ReplicaFacts::Steps usual_run() const;

 private:
  std::int64_t warm_up_, period_;  // no period: 0
};

class BucketSums {
 public:
  // Of buckets of `flat`, or of numbers like these. `comm` runs the sums and records their memory.
  BucketSums(const Plan& plan, const Parameters& parameters, const std::vector<Bucket>& buckets,
             Communicator& comm, Slice flat);
  // To call before the first run. The matrices, which must outlive it, are those of the parameters.
  void take_projectors(const WholeMatrices& matrices);
  // Call before a step's sums. Gradients are scaled by `loss_scale`; kept values are not.
  void begin(double loss_scale);
  // Restores what was kept at begin(), because the step is skipped.
  void skip();
  // `numbers` of bucket `number` become their sum over the ranks. After so many optimizer steps.
  void run(Communicator& comm, std::size_t number, Slice numbers, std::int64_t steps);
  // The algorithms of the buckets, if they are all-reduced.
  std::vector<std::string> algorithms() const;
  // What the rank keeps for its next sums: see compressed_sum.h.
  std::vector<Slice> kept() const;

 private:
  std::vector<const AllReduceAlgorithm*> algorithms_;  // by bucket
  WholeSteps whole_;
  std::optional<GradientExchange> exchange_;
  std::unique_ptr<CompressedSum> compressed_;  // instead in all other steps, if the plan says so
  Memory widened_;                             // 16-bit gradients of a bucket, for it
  double loss_scale_ = 1;
  // Copies of kept() from begin(); only if steps may be skipped.
  std::vector<Memory> before_;
};

// What a rank does with its buckets, for the closed forms.
struct BucketUse {
  std::vector<Bucket> buckets;
  std::vector<Bucket> sent;    // in the step that is predicted
  bool is_whole = false;       // that step, which then sums gradients as they are
  bool has_whole = false;      // the run, such a step
  bool have_been_sent = true;  // in the run, whose collectives then took scratch
  bool overlaps = false;  // sums meet other memory or not, depending on the time that they take
  const char* label = "gradients";
};
// All buckets are sent in every step.
BucketUse use_in_every_step(const Plan& plan, const std::vector<Bucket>& buckets,
                            const ReplicaFacts& facts);
// Adds the traffic of a step, and the memory of all sums; at `moment` the scratch of their algorithms. These are
// chosen by `auto`, as `facts` says, or the plan's. Traffic is unknown if one of them belongs to a library, so
// that its messages are invisible here, or is not chosen yet.
void add_bucket_sums(Terms& terms, const Plan& plan, const ReplicaGroup& replicas,
                     const Parameters& parameters, const ReplicaFacts& facts, const BucketUse& use,
                     Moment moment);

}  // namespace lockstep
