// What every training loop of a rank shares: plan, data, validation, and result.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "collectives/transport/launch/launch.h"
#include "models/backend.h"
#include "models/data/dataset.h"
#include "models/gpt/gpt.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/result.h"
#include "parallel/rank/own_time.h"
#include "parallel/rank/step_counter.h"

namespace lockstep {

// Called on rank 0 after each step.
using OnStep = std::function<void(const StepRecord&)>;

class Training {
 public:
  Training(RankContext& context, const Plan& plan, std::unique_ptr<Backend> backend);

  RankContext& context() { return context_; }
  const Plan& plan() const { return plan_; }
  const Dataset& dataset() const { return dataset_; }
  Backend& backend() { return *backend_; }
  TrainResult& result() { return result_; }
  bool computes() const { return plan_.computes(context_.world.rank()); }

  // Throws Error (bad_input) if a batch of a step or of the validation cannot be made, or has no
  // target, or if there is nothing to begin the sample with. Called before the first step, so that
  // no run fails late.
  void check_data() const;
  // Sequences of a step, with the tokens that this rank has of each.
  Batch batch(int step, const Share& share) const;
  // This rank's micro-batches of a step; empty on a rank that does not compute.
  std::vector<Batch> micro_batches(int step) const;
  // The targets of a step's global batch; at least 1, because losses are divided by it.
  Count targets(int step) const;
  // The prediction of what was counted; with documents, pairs depend on those of that step.
  Prediction prediction_of(const TrainingRank& rank, const CountedStep& counted) const;
  // Validates if the plan asks for it, and adds a record. Every rank calls it.
  void evaluate(TrainingRank& rank, int steps_taken);
  // The value reduced over all ranks.
  double over_ranks(double value, ReduceOp op);
  // Adds to a record what the routers of all ranks have chosen in its step.
  void add_routing(StepRecord& record, const RoutingTotals& own);
  // Tokens per second of a step. Under the clock `unit` computing takes no time.
  double rate(double seconds) const;

  // Collects all ranks' measurements and predictions on rank 0, writes the weights and a sample.
  // `counted` is the last step that was taken.
  void report(TrainingRank& rank, const PipelineRecord& pipeline, const OwnTimes& own_times,
              const CountedStep& counted);

 private:
  // Returns, for each group of ranks that shares a replica's sequences of a step in that layout,
  // the (query, key) pairs of one head.
  std::vector<Count> pairs_of_groups(int step, const Share& share, const TokenLayout& layout) const;
  std::vector<LayoutRecord> compare_layouts(int step) const;
  double validation_loss(TrainingRank& rank);
  void save(TrainingRank& rank);
  void sample(TrainingRank& rank);

  RankContext& context_;
  const Plan& plan_;
  Dataset dataset_;
  Sampling sampling_;
  std::unique_ptr<Backend> backend_;
  TrainResult result_;
};

}  // namespace lockstep
