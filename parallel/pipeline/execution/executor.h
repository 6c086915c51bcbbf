// Runs any schedule on this rank's stages of the model. It handles messages and stages, but knows
// no particular schedule. The last backward pass of a stage completes its gradients one by one. An
// observer learns of each as it becomes ready, so that data parallelism can reduce it at the same
// time.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/stopwatch.h"
#include "collectives/transport/launch/launch.h"
#include "collectives/turns.h"
#include "models/data/dataset.h"
#include "models/gpt/gpt_stage.h"
#include "parallel/pipeline/execution/rank_program.h"
#include "parallel/pipeline/execution/stashes.h"
#include "parallel/plan/plan.h"
#include "parallel/rank/compute_clock.h"
#include "parallel/rank/schedule_observer.h"

namespace lockstep {

// The times of one run, in seconds. Of a pair that takes turns, each pass has the time of its own turns.
struct RunSeconds {
  double whole = 0;            // from begin to end
  std::vector<double> passes;  // in the order of the rank's schedule
};

class Executor final : private PassObserver {
 public:
  // Among the ranks of `pipeline`. Keeps in `inputs` what it recomputes stages from. The observer and
  // the stages must outlive it. waited() returns the seconds that layers have spent waiting for other
  // ranks, which a slowdown factor must not stretch. `turns` are those of pairs, if the plan overlaps
  // them.
  Executor(RankContext& context, Communicator& pipeline, const Plan& plan,
           std::map<int, GptStage>& stages, InputStore& inputs, ScheduleObserver& observer,
           ComputeClock::Seconds waited, Turns* turns = nullptr);

  // Forward and backward of all micro-batches. Adds to the gradients of this rank's stages and
  // returns its part of the loss.
  double run(std::span<const Batch> micro_batches, Count total_targets, double loss_scale);

  // Forward only, for a batch that all ranks know. Returns the sum of the token losses on the rank
  // of the last stage, elsewhere 0.
  double loss_sum(const Batch& batch);

  double waiting_seconds() const { return waiting_.seconds(); }
  // Times of the last runs, at most kept_runs. Omits the first run, which allocates memory, if
  // there are others.
  static constexpr std::size_t kept_runs = 64;
  std::vector<RunSeconds> runs() const;
  // The most micro-batches, summed over stages, between the beginning of their forward pass and the
  // end of their backward pass.
  int most_in_flight() const { return most_in_flight_; }

 private:
  // A message's name at its receiver: stage, pass, micro-batch.
  using Name = std::tuple<int, Pass, int>;
  struct Message {
    Tensor tensor;
    Request request;  // null if the message never leaves the rank
  };
  struct Flight {
    StageStash stash;
    int input = 0;  // the number of its kept input, if the stash is recomputed
  };

  void before_use(const Unit& unit, UnitUse use) override { observer_.before_use(unit, use); }
  void after_use(const Unit& unit, UnitUse use) override { observer_.after_use(unit, use); }
  void gradient_ready(int parameter, ParameterSet set) override;

  bool in_training() const { return program_ == &training_; }
  // Runs a program on micro-batches. Losses count `share` each, and their gradients times `scale`.
  void take_steps(const RankProgram& program, std::span<const Batch> micro_batches, double share,
                  double scale);
  // Waits until all messages have been received, and returns the loss.
  double finish();

  void begin_receive(const Step& step, std::int64_t number);
  void begin_send(std::size_t place, const Step& step);
  void finish_send(std::size_t place);
  // Takes the step at `place`, with the next one if they are a pair; returns how many.
  std::size_t compute_at(std::size_t place);
  void compute(const Action& action);
  // The backward pass begins: what it sends first needs little work, and its rows travel while the
  // forward pass computes.
  void take_turns(const Action& forward, const Action& backward);
  void forward(const Action& action);
  void backward(const Action& action);
  void weight_gradient(const Action& action);
  void keep_input_only(const Action& action, Flight& here);
  void make_stash_again(const Action& action, Flight& here);

  const Batch& batch(const Action& action) const {
    return micro_batches_[static_cast<std::size_t>(action.micro_batch)];
  }
  Rows rows(const Action& action) const {
    return in_training() ? rows_in_training(batch(action), loss_scale_) : rows_of(batch(action));
  }
  GptStage& stage(const Action& action) { return stages_.at(action.stage); }
  Flight& flight(const Action& action) { return flights_[{action.stage, action.micro_batch}]; }
  void wait_for_input(const Action& action);
  // Returns the action's input; empty if the stage has no neighbour that provides one.
  Slice input_of(const Action& action);
  void drop_input(const Action& action);
  Tensor message_tensor(const Action& action);
  void hand_on(const Action& action, Tensor output);
  void release(const Action& action);
  // Runs work(), `parts` thirds of a stage's work on a micro-batch. Validation is not timed.
  template <typename Work>
  void timed(const Action& action, int parts, Work work);

  using Interval = std::pair<ThreadClock::Moment, ThreadClock::Moment>;
  struct Run {
    ThreadClock::Moment begin, end;
    std::vector<std::vector<Interval>> passes;  // one interval, or those of its turns
  };

  RankContext& context_;
  const GptConfig& config_;
  DType dtype_;
  const RankProgram training_, validation_;
  std::map<int, GptStage>& stages_;
  InputStore& inputs_;
  ScheduleObserver& observer_;
  bool recomputes_;
  ComputeClock compute_clock_;
  Turns* turns_;
  std::map<Pass, Communicator> channels_;  // activations go forward, gradients back

  const RankProgram* program_ = &training_;  // the one that runs
  std::span<const Batch> micro_batches_;
  std::int64_t first_number_ = 0;  // of this run's messages
  double scale_ = 1, share_ = 1, loss_scale_ = 1, loss_ = 0;
  bool completes_gradients_ = false;  // the running action
  bool in_pair_ = false;
  std::map<Name, Message> arriving_;
  std::map<Name, Tensor> leaving_;
  std::map<std::size_t, Message> sent_;            // by index of the step
  std::map<std::pair<int, int>, Flight> flights_;  // by stage and micro-batch
  Stashes stashes_;

  bool keeps_first_run_ = true;
  std::deque<Run> runs_;
  int in_flight_ = 0, most_in_flight_ = 0;
  Stopwatch waiting_{context_.world};
};

}  // namespace lockstep
