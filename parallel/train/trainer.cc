#include "parallel/train/trainer.h"

#include <fmt/format.h>
#include <omp.h>

#include <cmath>
#include <thread>

#include "parallel/checkpoint/checkpoints.h"
#include "parallel/parameter_server/asynchronous.h"
#include "parallel/parameter_server/ps.h"
#include "parallel/plan/loss_scale.h"
#include "parallel/rank/report.h"
#include "parallel/serial/serial.h"
#include "parallel/tags/with_tags.h"
#include "parallel/train/runtime.h"
#include "parallel/train/save_adapters.h"

namespace lockstep {
namespace {

int threads_per_rank(const TrainOptions& options, int ranks) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return options.threads > 0 ? options.threads : std::max(1, cores / ranks);
}

// During its life a rank's communication and allocations are not measured.
class Unmeasured {
 public:
  explicit Unmeasured(RankContext& context) : context_(context) { hold(true); }
  ~Unmeasured() { hold(false); }
  Unmeasured(const Unmeasured&) = delete;

 private:
  void hold(bool held) {
    context_.counters.pause(held);
    context_.ledger.hold_peaks(held);
  }
  RankContext& context_;
};

// The steps of one rank, taken together with all other ranks.
class Steps {
 public:
  Steps(Training& training, TrainingWatch* watch)
      : training_(training),
        watch_(watch),
        context_(training.context()),
        options_(training.plan().options),
        rank_(make_rank(context_, training.plan(), training.backend())),
        scaler_(loss_scaler(options_)),
        checkpoints_(training, *rank_, scaler_),
        scales_(options_.loss_scaling != "none") {}

  void run(const OnStep& on_step) {
    checkpoints_.prepare();
    const std::optional<int> resumed = checkpoints_.resume();
    training_.check_data();
    if (!resumed) rank_->load_weights();
    for (int step = resumed.value_or(0); step < options_.steps; ++step) {
      const StepRecord record = take_step(step);
      if (context_.world.rank() == 0 && on_step) on_step(record);
      // The other ranks' results are not used.
      if (context_.world.rank() == 0) training_.result().steps.push_back(record);
      // Written before validation, so that a run with a failing validation can be resumed.
      checkpoints_.after_step(step + 1);
      const bool evaluate_now =
          options_.eval_interval > 0 && (step + 1) % options_.eval_interval == 0;
      if (evaluate_now || step + 1 == options_.steps) training_.evaluate(*rank_, step + 1);
    }
    if (watch_) {
      const Unmeasured unmeasured(context_);
      watch_->at_end(*rank_, counted_, training_.prediction_of(*rank_, counted_));
    }
    const PipelineRecord pipeline = rank_->finish();
    training_.report(*rank_, pipeline, own_times_, counted_);
    if (!options_.save_adapters.empty()) save_adapters(training_.plan(), context_, *rank_);
  }

 private:
  StepRecord take_step(int step) {
    // Traffic is counted for whole steps: in the last one, or in every step if steps may be
    // skipped.
    const bool counts = scales_ || step + 1 == options_.steps;
    if (counts) rank_->wait_for_parameters();
    const StepCounter counter(context_, *rank_);
    StepRecord record = take_own_step(step, counts);
    CountedStep counted = counter.counted();
    record.seconds = counted.seconds;
    own_times_.add(counted.seconds, counted.exposed.sum(), counted.late);
    counted.step = step;
    counted.skipped = record.skipped;
    if (!record.skipped || counted_.skipped) counted_ = std::move(counted);
    record.loss = training_.over_ranks(record.loss, ReduceOp::sum);
    record.grad_norm = training_.over_ranks(record.grad_norm, ReduceOp::max);
    training_.add_routing(record, rank_->take_routing());
    record.tokens_per_second = training_.rate(record.seconds);
    check_finite(record, scaler_.smallest(), context_.world);
    if (watch_) watch_->after_step(record);
    return record;
  }

  // Contains this rank's part of the loss.
  StepRecord take_own_step(int step, bool counts) {
    StepRecord record{.step = step, .loss_scale = scaler_.scale()};
    if (options_.documents) record.targets = training_.targets(step);
    const Trace::Span span(context_.trace, 0, fmt::format("step {}", step), "step");
    record.loss = compute_gradients(step);
    record.grad_norm = rank_->gradient_norm() / scaler_.scale();
    record.skipped = scales_ && any_overflowed(record.grad_norm);
    if (record.skipped) {
      rank_->skip();
    } else {
      show_gradients(record);
      update(step, record.grad_norm);
    }
    scaler_.update(record.skipped);
    if (counts) rank_->wait_for_parameters();
    // Makes the step's time include the device's work.
    if (Device* const device = context_.ledger.device()) device->synchronize();
    return record;
  }

  // The same on every rank: all of them skip a step, or none does.
  bool any_overflowed(double norm) {
    return training_.over_ranks(std::isfinite(norm) ? 0 : 1, ReduceOp::max) > 0;
  }

  double compute_gradients(int step) {
    const Trace::Span span(context_.trace, 0, "forward and backward", "compute");
    if (options_.optimizer_in_backward) rank_->step_in_backward(learning_rate(options_, step));
    const double loss =
        rank_->accumulate(training_.micro_batches(step), training_.targets(step), scaler_.scale());
    if (context_.trace) context_.trace->memory(context_.ledger);
    return loss;
  }

  void show_gradients(const StepRecord& step) {
    if (!watch_ || options_.optimizer_in_backward) return;  // then they are gone
    const Unmeasured unmeasured(context_);
    watch_->on_gradients(*rank_, step);
  }

  void update(int step, double norm) {
    const Trace::Span span(context_.trace, 0, "optimizer", "optimizer");
    rank_->update(learning_rate(options_, step), clip_factor(options_, norm) / scaler_.scale());
  }

  Training& training_;
  TrainingWatch* watch_;
  RankContext& context_;
  const TrainOptions& options_;
  std::unique_ptr<TrainingRank> rank_;
  LossScaler scaler_;
  Checkpoints checkpoints_;
  bool scales_;
  OwnTimes own_times_;
  // Of the last step that was taken; of the last one if all were skipped.
  CountedStep counted_ = {.skipped = true};
};

}  // namespace

std::unique_ptr<TrainingRank> make_rank(RankContext& context, const Plan& plan, Backend& backend) {
  if (plan.is_reference()) return make_serial(context, plan, backend);
  if (plan.has_servers()) return make_synchronous_ps(context, plan, backend);
  return make_runtime(context, plan, backend);
}

TrainResult train(RankContext& context, const Plan& plan, const OnStep& on_step,
                  TrainingWatch* watch) {
  require(context.world.size() == plan.ranks,
          fmt::format("the plan needs {} ranks, but the world has {}", plan.ranks,
                      context.world.size()),
          "start as many ranks as the plan has");
  omp_set_num_threads(threads_per_rank(plan.options, context.world.size()));
  Training training(context, plan, backend_with_tags(context, plan));
  if (plan.is_asynchronous())
    train_asynchronously(training, on_step);
  else
    Steps(training, watch).run(on_step);
  return std::move(training.result());
}

}  // namespace lockstep
