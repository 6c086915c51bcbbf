// A technique of parallel training: how ranks share the work of one optimizer step. The trainer
// drives it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/transport/launch.h"
#include "models/adamw.h"
#include "models/dataset.h"
#include "models/gpt.h"
#include "parallel/options.h"
#include "parallel/result.h"

namespace lockstep {

// Sequences of the global batch that one rank computes, or one of its micro-batches.
struct Share {
  int first = 0;
  int count = 0;

  // Part i of nearly equal ones. Gradients are sums over targets divided by their number in the
  // whole batch, so parts of unequal size weigh what they should.
  Share part(int i, int parts) const {
    const Parts part(count, parts);
    return {.first = first + static_cast<int>(part.offset(i)), .count = static_cast<int>(part[i])};
  }
};
// Throws Error (bad_input) unless every micro-batch of every one of `ranks` computing ranks has a
// sequence.
void check_shares(const TrainOptions& options, int ranks);

class Technique {
 public:
  virtual ~Technique() = default;

  // Gives every rank the weights of rank 0. Called once, before the first step.
  virtual void prepare() = 0;
  virtual Share share(int global_batch) const = 0;
  // Where no rank holds the whole model: from the whole one on rank 0 to the ranks' parts and back.
  // Elsewhere `whole` is null.
  virtual void scatter_weights(Parameters* /*whole*/) {}
  virtual void gather_weights(Parameters* /*whole*/) {}

  // Forward and backward of this rank's micro-batches, until the gradients are those of the whole
  // global batch of `total_targets` targets, times `loss_scale`. Returns this rank's part of the
  // loss, not scaled: the parts of all ranks add up to the mean.
  virtual double accumulate(std::span<const Batch> micro_batches, Count total_targets,
                            double loss_scale) = 0;
  // L2 norm of the gradients of all parameters.
  virtual double gradient_norm() = 0;
  // The sum of the token losses of a batch; where ranks hold one model together, all of them take
  // the same batch, and their parts add up to it.
  virtual double loss_sum(const Batch& batch) = 0;
  // One AdamW step with gradients times `gradient_scale`.
  virtual void update(double learning_rate, double gradient_scale) = 0;

  // Whether all ranks take each step together. Else each takes its own, as often as the others or
  // not at all. Before its first every rank calls serve(): one that does not compute is busy in it
  // until the others have taken theirs, one that does goes on to its steps, and calls
  // finish_serving() after the last.
  virtual bool in_step() const { return true; }
  virtual void serve() {}
  virtual void finish_serving() {}
  // Where ranks are not in step: whether the others can go on when this rank fails. It then calls
  // depart(), and leaves what is left to them.
  virtual bool is_dispensable() const { return false; }
  virtual void depart() {}
  // Called once, after the last step: gives every rank that computes the final weights.
  virtual void finish() {}

  // Seconds this rank has waited for communication in accumulate() so far.
  virtual double exposed_seconds() const { return 0; }
  // Seconds of its communication so far, also of that which went on beside compute.
  virtual double communication_seconds() const { return exposed_seconds(); }
  // The closed forms on this rank: traffic of one optimizer step (of the run, where ranks are not
  // in step), peaks of memory. The trainer fills in what was measured.
  virtual std::vector<TheoryRecord> theory() const = 0;
  // Of a pipeline, after finish().
  virtual std::optional<BubbleRecord> bubble() const { return {}; }
  virtual int in_flight() const { return 0; }
  // The steps that took effect on this rank, in their order; none where ranks are in step.
  virtual std::vector<UpdateRecord> updates() const { return {}; }
};

// What every rank keeps under AdamW where nothing is sharded.
std::vector<TheoryRecord> replicated_states(int rank, const Parameters& parameters);

// The peak of activations of a rank that computes `share` on a whole model; `models` of them
// validate together.
TheoryRecord whole_model_activations(int rank, const Gpt& model, const TrainOptions& options,
                                     const Share& share, int models);

struct TechniqueEntry {
  std::string_view name;
  std::string_view summary;
  std::vector<int> demo_ranks;          // what the demo shows it with
  std::vector<std::string> demo_flags;  // and how
  // Throws Error (bad_input) naming the rule when the options do not fit `ranks`.
  void (*check)(const TrainOptions& options, int ranks);
  // Ranks 0 .. n - 1 compute, on models of their own.
  int (*computing_ranks)(const TrainOptions& options, int ranks);
  // How many models they are, each on one of them or on several, and which one `rank` is of.
  int (*models)(const TrainOptions& options, int ranks);
  int (*model_of)(const TrainOptions& options, int ranks, int rank);
  // Whether no rank holds the whole model.
  bool splits_model = false;
  std::unique_ptr<Technique> (*make)(RankContext& context, Gpt& model, const TrainOptions& options);
};
const std::vector<TechniqueEntry>& techniques();
// Throws Error (bad_input) listing the techniques there are.
const TechniqueEntry& technique(std::string_view name);

}  // namespace lockstep
