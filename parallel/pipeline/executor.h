// Runs any schedule on this rank's stages of the model. It knows messages and stages, and no
// schedule.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/stopwatch.h"
#include "collectives/transport/launch.h"
#include "models/dataset.h"
#include "models/gpt_stage.h"
#include "parallel/options.h"
#include "parallel/pipeline/communication.h"
#include "parallel/pipeline/stashes.h"

namespace lockstep {

// One rank's part of a pipeline.
struct PipelineRank {
  std::vector<Step> steps;
  std::vector<std::vector<std::size_t>> taken_sends;  // see taken_sends()
  std::vector<int> rank_of_stage;
  std::map<int, GptStage> stages;
};

// Of its stages: the executor itself keeps nothing but their inputs where everything is made again.
ModelOptions stage_options(const TrainOptions& options);

// How long one run took, in seconds.
struct RunSeconds {
  double whole = 0;            // from its beginning to its end
  std::vector<double> passes;  // in the order of the rank's schedule
};

class Executor {
 public:
  // Among the ranks of `pipeline`. Where layers wait for other ranks, waited() is for how many
  // seconds they have so far: waiting takes no longer on a slow rank.
  using Seconds = std::function<double()>;
  Executor(RankContext& context, Communicator& pipeline, const TrainOptions& options,
           const GptConfig& config, PipelineRank& rank, Seconds waited = {});

  // Forward and backward of all micro-batches. Adds to the gradients of this rank's stages, and
  // returns its part of the loss.
  double run(std::span<const Batch> micro_batches, Count total_targets, double loss_scale);

  // Forward alone, of a batch that all ranks know; the sum of the token losses on the rank of the
  // last stage, elsewhere 0.
  double loss_sum(const Batch& batch);

  double waiting_seconds() const { return waiting_.seconds(); }
  // Of the last runs, at most kept_runs: without the very first, in which memory is found, if there
  // are more.
  static constexpr std::size_t kept_runs = 64;
  std::vector<RunSeconds> runs() const;
  // The most micro-batches, stage by stage, that were between the beginning of their forward pass
  // and the end of their backward pass.
  int most_in_flight() const { return most_in_flight_; }

 private:
  // A message by its receiver: stage, pass, micro-batch.
  using Name = std::tuple<int, Pass, int>;
  struct Message {
    Tensor tensor;
    Request request;  // null where it never leaves the rank
  };
  struct Flight {
    StageStash stash;
    Tensor input;  // kept where the stash is made again
  };

  void begin_receive(const Step& step);
  void begin_send(std::size_t place, const Step& step);
  void finish_send(std::size_t place);
  void compute(const Action& action);
  void forward(const Action& action);
  void backward(const Action& action);
  void weight_gradient(const Action& action);
  void keep_input_only(const Action& action, Flight& here);
  void make_stash_again(const Action& action, Flight& here);

  const Batch& batch(const Action& action) const {
    return micro_batches_[static_cast<std::size_t>(action.micro_batch)];
  }
  GptStage& stage(const Action& action) { return rank_.stages.at(action.stage); }
  Flight& flight(const Action& action) { return flights_[{action.stage, action.micro_batch}]; }
  void wait_for_input(const Action& action);
  // Empty where the stage has no neighbour that gives it one.
  Slice input_of(const Action& action);
  void drop_input(const Action& action);
  Tensor message_tensor(const Action& action);
  void hand_on(const Action& action, Tensor output);
  void release(const Action& action);
  template <typename Work>
  void timed(const Action& action, Work work);
  // On a slow rank, or under the clock unit, longer than it does.
  template <typename Work>
  void take_time(const Action& action, Work work);

  struct Run {
    LineClock::Moment begin, end;
    std::vector<std::pair<LineClock::Moment, LineClock::Moment>> passes;
  };

  RankContext& context_;
  const GptConfig& config_;
  DType dtype_;
  PipelineRank& rank_;
  bool recomputes_;
  Seconds waited_;
  double factor_ = 1;                      // by which this rank is slow
  double pass_seconds_ = 0;                // under the clock unit: of each third of a stage's work
  std::map<Pass, Communicator> channels_;  // activations go forward, gradients back

  std::span<const Batch> micro_batches_;
  double scale_ = 1, share_ = 1, loss_ = 0;
  std::map<Name, Message> arriving_;
  std::map<Name, Tensor> leaving_;
  std::map<std::size_t, Message> sent_;            // by the place of the step
  std::map<std::pair<int, int>, Flight> flights_;  // by stage and micro-batch
  Stashes stashes_;

  bool keeps_first_run_ = true;
  std::deque<Run> runs_;
  int in_flight_ = 0, most_in_flight_ = 0;
  Stopwatch waiting_{context_.world};
};

}  // namespace lockstep
