#include "parallel/trainer.h"

#include <fmt/format.h>
#include <omp.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "models/dataset.h"
#include "models/device_backend.h"
#include "models/gpt.h"
#include "models/gpt_config.h"
#include "models/sample.h"
#include "models/weights.h"
#include "parallel/loss_scale.h"
#include "parallel/report.h"
#include "parallel/technique.h"

namespace lockstep {
namespace {

int threads_per_rank(const TrainOptions& options, int ranks) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return options.threads > 0 ? options.threads : std::max(1, cores / ranks);
}

// Of traffic that is not the technique's.
const std::string report_label = "report";

// One rank's run. Lives through the whole of it.
class Trainer {
 public:
  Trainer(RankContext& context, const TrainOptions& options)
      : context_(context),
        options_(options),
        config_(gpt_config(options.model)),
        length_(sequence_length(options, config_)),
        dataset_(options.data, config_.vocabulary, options.validation_fraction),
        entry_(technique(options.technique)),
        computing_ranks_(entry_.computing_ranks(options, context.world.size())),
        models_(entry_.models(options, context.world.size())),
        computes_(context.world.rank() < computing_ranks_),
        backend_(make_backend(context.ledger)),
        model_(config_, *backend_, options.dtype, context.ledger, computes_ && !entry_.splits_model,
               model_options(options)),
        technique_(entry_.make(context, model_, options)),
        share_(technique_->share(options.global_batch)),
        scaler_(loss_scaling_from_name(loss_scaling(options))),
        scales_(loss_scaling(options) != "none") {}

  TrainResult run(const OnStep& on_step) {
    load_weights_on_rank_0();
    technique_->prepare();
    if (technique_->in_step())
      run_in_step(on_step);
    else
      run_at_own_pace(on_step);
    finish();
    return std::move(result_);
  }

 private:
  void run_in_step(const OnStep& on_step) {
    for (int step = 0; step < options_.steps; ++step) {
      const StepRecord record = take_step(step);
      if (context_.world.rank() == 0 && on_step) on_step(record);
      result_.steps.push_back(record);
      const bool evaluate_now =
          options_.eval_interval > 0 && (step + 1) % options_.eval_interval == 0;
      if (evaluate_now || step + 1 == options_.steps) evaluate(step + 1);
    }
    technique_->finish();
  }

  // Traffic is that of the whole run: ranks have no step in common.
  void run_at_own_pace(const OnStep& on_step) {
    OwnRun own;
    context_.counters.reset();
    const double begin = context_.world.transport().now_seconds();
    try {
      technique_->serve();
      for (int step = 0; computes_ && step < options_.steps; ++step) {
        StepRecord record = take_own_step(step);
        check_finite(record, context_.world);
        if (context_.world.rank() == 0 && on_step) on_step(record);
        record.seconds = context_.world.transport().now_seconds() - begin;
        own.steps.push_back(record);
      }
      technique_->finish_serving();
    } catch (const Error& error) {
      // Only who failed itself leaves the others to go on.
      if (error.kind() != ErrorKind::lost_rank || !technique_->is_dispensable() ||
          error.context().failed_rank != context_.world.rank())
        throw;
      own.lost.push_back({.rank = context_.world.rank(),
                          .step = static_cast<int>(own.steps.size()),
                          .why = error.message()});
    }
    if (!own.lost.empty()) technique_->depart();
    traffic_ = context_.counters.by_label();
    technique_->finish();
    own.updates = technique_->updates();
    collect_own_runs(context_.world, own, result_);
    for (StepRecord& step : result_.steps) step.tokens_per_second = rate(step.seconds);
    evaluate(options_.steps);
  }

  // A broken file is then reported once, and every rank learns that rank 0 failed.
  void load_weights_on_rank_0() {
    with_whole_model([&](Gpt* whole) {
      if (whole && options_.init.empty()) whole->initialize(options_.seed);
      if (whole && !options_.init.empty()) load_weights(options_.init, whole->parameters());
      technique_->scatter_weights(whole ? &whole->parameters() : nullptr);
    });
  }

  // Calls use(the whole model) on rank 0, use(null) elsewhere. Where no rank holds it, it is made
  // for the call, in memory that is not the technique's.
  template <typename Use>
  void with_whole_model(Use use) {
    if (context_.world.rank() != 0) return use(nullptr);
    if (!entry_.splits_model) return use(&model_);
    Ledger ledger;
    const auto backend = make_backend(ledger);
    Gpt whole(config_, *backend, options_.dtype, ledger);
    use(&whole);
  }

  std::vector<Batch> micro_batches(int step) const {
    std::vector<Batch> batches;
    for (int m = 0; computes_ && m < options_.micro_batches; ++m) {
      const Share rows = share_.part(m, options_.micro_batches);
      batches.push_back(
          dataset_.batch(options_.order == "sequential" ? Order::sequential : Order::random, step,
                         options_.global_batch, rows.first, rows.count, length_, options_.seed));
    }
    return batches;
  }

  // One step of all ranks.
  StepRecord take_step(int step) {
    context_.counters.reset();
    StepRecord record = take_own_step(step);
    // Counted before the loss is reported, so that it is the technique's own traffic.
    traffic_ = context_.counters.by_label();
    traffic_.erase(report_label);
    record.loss = over_ranks(record.loss, ReduceOp::sum);
    record.grad_norm = over_ranks(record.grad_norm, ReduceOp::max);
    record.tokens_per_second = rate(record.seconds);
    check_finite(record, context_.world);
    return record;
  }

  // One step of this rank, with its part of the loss.
  StepRecord take_own_step(int step) {
    const Transport& transport = context_.world.transport();
    const double exposed_before = technique_->exposed_seconds();
    const double begin = transport.now_seconds();
    StepRecord record{.step = step, .loss_scale = scaler_.scale()};
    {
      const Trace::Span span(context_.trace, 0, fmt::format("step {}", step), "step");
      record.loss = compute_gradients(step);
      record.grad_norm = technique_->gradient_norm() / scaler_.scale();
      record.skipped = scales_ && any_overflowed(record.grad_norm);
      if (!record.skipped) update(step, record.grad_norm);
      scaler_.update(record.skipped);
      // So that the step's time is the device's, too.
      if (Device* const device = context_.ledger.device()) device->wait();
    }
    record.seconds = transport.now_seconds() - begin;
    result_busy_ += record.seconds - (technique_->exposed_seconds() - exposed_before);
    return record;
  }

  // The same on every rank: all skip a step, or none does.
  bool any_overflowed(double norm) {
    return over_ranks(std::isfinite(norm) ? 0 : 1, ReduceOp::max) > 0;
  }

  double compute_gradients(int step) {
    const Trace::Span span(context_.trace, 0, "forward and backward", "compute");
    const double loss =
        technique_->accumulate(micro_batches(step), tokens_per_step(), scaler_.scale());
    if (context_.trace) context_.trace->memory(context_.ledger);
    return loss;
  }

  void update(int step, double norm) {
    const Trace::Span span(context_.trace, 0, "optimizer", "optimizer");
    technique_->update(learning_rate(options_, step),
                       clip_factor(options_, norm) / scaler_.scale());
  }

  void evaluate(int steps) {
    if (options_.validation_fraction > 0)
      result_.validation.push_back({.step = steps, .loss = validation_loss()});
  }

  double validation_loss() {
    const Trace::Span span(context_.trace, 0, "validation", "compute");
    // Ranks that hold one model together take the same rows.
    const int model = entry_.model_of(options_, context_.world.size(), context_.world.rank());
    const Share largest = Share{.count = options_.global_batch}.part(0, models_);
    // No more memory than training takes.
    const int rows_at_once = largest.part(0, options_.micro_batches).count;
    const int rows = dataset_.validation_sequences(length_);
    double sum = 0;
    // Blocks of rows are dealt to the models, in turn.
    for (int first = model * rows_at_once; computes_ && first < rows;
         first += models_ * rows_at_once)
      sum += technique_->loss_sum(
          dataset_.validation_batch(first, std::min(rows_at_once, rows - first), length_));
    return over_ranks(sum, ReduceOp::sum) / (static_cast<double>(rows) * length_);
  }

  double over_ranks(double value, ReduceOp op) {
    context_.world.set_label(report_label);
    all_reduce(context_.world, host_slice(std::span(&value, 1)), op);
    context_.world.set_label("gradients");
    return value;
  }

  void finish() {
    RankRecord record{.rank = context_.world.rank(), .traffic = traffic_};
    for (int use = 0; use < memory_uses; ++use)
      record.peak_bytes[std::string(name_of(static_cast<MemoryUse>(use)))] =
          context_.ledger.peak_bytes(static_cast<MemoryUse>(use));
    record.in_flight = technique_->in_flight();
    record.peak_bytes["total"] = context_.ledger.peak_total_bytes();
    record.busy_seconds = result_busy_;
    record.exposed_communication_seconds = technique_->exposed_seconds();
    record.hidden_communication_seconds =
        std::max(0.0, technique_->communication_seconds() - technique_->exposed_seconds());

    collect(context_, record, technique_->theory(), result_);
    save_and_sample();
    if (context_.world.rank() != 0) return;
    result_.bubble = technique_->bubble();
    result_.transport = context_.world.transport().name();
    result_.world_size = context_.world.size();
    result_.threads_per_rank = omp_get_max_threads();
    result_.parameters = model_.parameters().count();
    result_.tokens_per_step = tokens_per_step();
    result_.unigram_entropy = dataset_.unigram_entropy();
  }

  void save_and_sample() {
    if (options_.save.empty() && options_.sample == 0) return;
    with_whole_model([&](Gpt* whole) {
      technique_->gather_weights(whole ? &whole->parameters() : nullptr);
      if (whole && !options_.save.empty())
        save_weights(options_.save, whole->parameters(), config_);
      if (whole && options_.sample > 0)
        result_.sample = sample_text(*whole, options_.prompt, options_.sample, 0.8, options_.seed);
    });
  }

  // Tokens of a step in a second. Under the clock `unit` computing takes no time.
  double rate(double seconds) const {
    return seconds > 0 ? static_cast<double>(tokens_per_step()) / seconds : 0;
  }
  Count tokens_per_step() const { return Count{options_.global_batch} * length_; }

  RankContext& context_;
  const TrainOptions& options_;
  GptConfig config_;
  int length_;
  Dataset dataset_;
  const TechniqueEntry& entry_;
  int computing_ranks_, models_;
  bool computes_;  // this rank
  std::unique_ptr<Backend> backend_;
  Gpt model_;
  std::unique_ptr<Technique> technique_;
  Share share_;
  LossScaler scaler_;
  bool scales_;
  TrainResult result_;
  std::map<std::string, Volume, std::less<>> traffic_;
  double result_busy_ = 0;
};

}  // namespace

TrainResult train(RankContext& context, const TrainOptions& options, const OnStep& on_step) {
  check(options, context.world.size());
  omp_set_num_threads(threads_per_rank(options, context.world.size()));
  return Trainer(context, options).run(on_step);
}

}  // namespace lockstep
