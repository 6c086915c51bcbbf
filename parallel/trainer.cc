#include "parallel/trainer.h"

#include <fmt/format.h>
#include <omp.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "models/dataset.h"
#include "models/gpt.h"
#include "models/gpt_config.h"
#include "models/sample.h"
#include "models/schedule.h"
#include "models/weights.h"
#include "parallel/report.h"
#include "parallel/technique.h"

namespace lockstep {
namespace {

int threads_per_rank(const TrainOptions& options, int ranks) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return options.threads > 0 ? options.threads : std::max(1, cores / ranks);
}

// One rank's run. Lives through the whole of it.
class Trainer {
 public:
  Trainer(RankContext& context, const TrainOptions& options)
      : context_(context),
        options_(options),
        config_(gpt_config(options.model)),
        length_(options.sequence_length > 0 ? options.sequence_length : config_.context),
        dataset_(options.data, config_.vocabulary, options.validation_fraction),
        model_(config_, host_backend(), options.dtype, context.ledger),
        technique_(technique(options.technique).make(context, model_, options)),
        share_(technique_->share(options.global_batch)) {}

  TrainResult run(const OnStep& on_step) {
    load_weights_on_rank_0();
    technique_->prepare();
    for (int step = 0; step < options_.steps; ++step) {
      const StepRecord record = take_step(step);
      if (context_.world.rank() == 0 && on_step) on_step(record);
      result_.steps.push_back(record);
      const bool evaluate_now =
          options_.eval_interval > 0 && (step + 1) % options_.eval_interval == 0;
      if (options_.validation_fraction > 0 && (evaluate_now || step + 1 == options_.steps))
        result_.validation.push_back({.step = step + 1, .loss = validation_loss()});
    }
    finish();
    return std::move(result_);
  }

 private:
  // A broken file is then reported once, and every rank learns that rank 0 failed.
  void load_weights_on_rank_0() {
    if (context_.world.rank() != 0) return;
    if (options_.init.empty())
      model_.initialize(options_.seed);
    else
      load_weights(options_.init, model_.parameters());
  }

  std::vector<Batch> micro_batches(int step) const {
    std::vector<Batch> batches;
    const int rows = rows_of_micro_batch();
    for (int m = 0; m < options_.micro_batches; ++m)
      batches.push_back(dataset_.batch(
          options_.order == "sequential" ? Order::sequential : Order::random, step,
          options_.global_batch, share_.first + m * rows, rows, length_, options_.seed));
    return batches;
  }

  StepRecord take_step(int step) {
    const Transport& transport = context_.world.transport();
    context_.counters.reset();
    const double exposed_before = technique_->exposed_seconds();
    const double begin = transport.now_seconds();
    StepRecord record{.step = step};
    double loss = 0;
    {
      const Trace::Span span(context_.trace, 0, fmt::format("step {}", step), "step");
      loss = compute_gradients(step);
      record.grad_norm = technique_->gradient_norm();
      update(step, record.grad_norm);
    }
    record.seconds = transport.now_seconds() - begin;
    result_busy_ += record.seconds - (technique_->exposed_seconds() - exposed_before);
    // Counted before the loss is reported, so that it is the technique's own traffic.
    traffic_ = context_.counters.by_label();

    record.loss = sum_over_ranks(loss);
    // Under the clock `unit` computing takes no time.
    record.tokens_per_second =
        record.seconds > 0 ? static_cast<double>(tokens_per_step()) / record.seconds : 0;
    check_finite(record);
    return record;
  }

  double compute_gradients(int step) {
    const Trace::Span span(context_.trace, 0, "forward and backward", "compute");
    const double loss = technique_->accumulate(micro_batches(step), tokens_per_step());
    if (context_.trace) context_.trace->memory(context_.ledger);
    return loss;
  }

  void update(int step, double norm) {
    const Trace::Span span(context_.trace, 0, "optimizer", "optimizer");
    const bool cosine = options_.minimum_learning_rate >= 0;
    const LearningRateSchedule schedule{
        .peak = options_.learning_rate,
        .warmup_steps = options_.warmup_steps,
        .minimum = cosine ? options_.minimum_learning_rate : options_.learning_rate,
        .total_steps = options_.steps,
        .cosine = cosine};
    // As torch.nn.utils.clip_grad_norm_: the small term keeps a norm of zero harmless.
    constexpr double norm_epsilon = 1e-6;
    const double scale =
        options_.grad_clip > 0 ? std::min(1.0, options_.grad_clip / (norm + norm_epsilon)) : 1.0;
    technique_->update(schedule.at(step), scale);
  }

  double validation_loss() {
    const Trace::Span span(context_.trace, 0, "validation", "compute");
    const int rows_at_once = rows_of_micro_batch();  // no more memory than training takes
    const int rows = dataset_.validation_sequences(length_);
    const int ranks = context_.world.size(), rank = context_.world.rank();
    double sum = 0;
    // Blocks of rows are dealt to the ranks in turn.
    for (int first = rank * rows_at_once; first < rows; first += ranks * rows_at_once)
      sum += model_.loss_sum(
          dataset_.validation_batch(first, std::min(rows_at_once, rows - first), length_));
    return sum_over_ranks(sum) / (static_cast<double>(rows) * length_);
  }

  double sum_over_ranks(double value) {
    context_.world.set_label("report");
    all_reduce(context_.world, host_slice(std::span(&value, 1)));
    context_.world.set_label("gradients");
    return value;
  }

  void check_finite(const StepRecord& record) const {
    if (std::isfinite(record.loss) && std::isfinite(record.grad_norm)) return;
    throw Error(ErrorKind::wrong_result,
                fmt::format("step {}: loss {}, gradient norm {}", record.step, record.loss,
                            record.grad_norm),
                {.rank = context_.world.rank(),
                 .size = context_.world.size(),
                 .hint = "lower --lr, add --warmup-steps or set --grad-clip"});
  }

  void finish() {
    RankRecord record{.rank = context_.world.rank(), .traffic = traffic_};
    for (int use = 0; use < memory_uses; ++use)
      record.peak_bytes[std::string(name_of(static_cast<MemoryUse>(use)))] =
          context_.ledger.peak_bytes(static_cast<MemoryUse>(use));
    record.peak_bytes["total"] = context_.ledger.peak_total_bytes();
    record.busy_seconds = result_busy_;
    record.exposed_communication_seconds = technique_->exposed_seconds();
    record.hidden_communication_seconds =
        std::max(0.0, technique_->communication_seconds() - technique_->exposed_seconds());

    collect(context_, record, technique_->theory(), model_.parameters(), result_);
    if (context_.world.rank() != 0) return;
    result_.transport = context_.world.transport().name();
    result_.world_size = context_.world.size();
    result_.threads_per_rank = omp_get_max_threads();
    result_.parameters = model_.parameters().count();
    result_.tokens_per_step = tokens_per_step();
    result_.unigram_entropy = dataset_.unigram_entropy();
    if (!options_.save.empty()) save_weights(options_.save, model_.parameters(), config_);
    if (options_.sample > 0)
      result_.sample = sample_text(model_, options_.prompt, options_.sample, 0.8, options_.seed);
  }

  int rows_of_micro_batch() const { return share_.count / options_.micro_batches; }
  Count tokens_per_step() const { return Count{options_.global_batch} * length_; }

  RankContext& context_;
  const TrainOptions& options_;
  GptConfig config_;
  int length_;
  Dataset dataset_;
  Gpt model_;
  std::unique_ptr<Technique> technique_;
  Share share_;
  TrainResult result_;
  std::map<std::string, Volume, std::less<>> traffic_;
  double result_busy_ = 0;
};

}  // namespace

void check(const TrainOptions& options, int ranks) {
  const auto at_least = [](double value, double least, const char* flag) {
    require(value >= least && std::isfinite(value), fmt::format("{} {}", flag, value),
            fmt::format("use a finite number of at least {}", least));
  };
  const auto below_one = [](double value, const char* flag) {
    require(value >= 0 && value < 1, fmt::format("{} {}", flag, value),
            "use a number from 0 to below 1");
  };
  at_least(ranks, 1, "--ranks");
  at_least(options.global_batch, 1, "--global-batch");
  at_least(options.micro_batches, 1, "--micro-batches");
  at_least(options.steps, 1, "--steps");
  at_least(options.threads, 0, "--threads");
  at_least(options.sequence_length, 0, "--sequence-length");
  at_least(options.learning_rate, 0, "--lr");
  at_least(options.warmup_steps, 0, "--warmup-steps");
  at_least(options.weight_decay, 0, "--weight-decay");
  at_least(options.grad_clip, 0, "--grad-clip");
  at_least(options.eval_interval, 0, "--eval-interval");
  at_least(options.sample, 0, "--sample");
  below_one(options.beta1, "--beta1");
  below_one(options.beta2, "--beta2");
  below_one(options.validation_fraction, "--validation-fraction");
  require(options.eps > 0 && std::isfinite(options.eps), fmt::format("--eps {}", options.eps),
          "use a number above 0");
  require(options.order == "random" || options.order == "sequential",
          fmt::format("--order '{}'", options.order), "choose random or sequential");
  require(options.dtype == DType::f32 || options.dtype == DType::f64,
          fmt::format("--dtype {}", name_of(options.dtype)), "choose f32 or f64");
  technique(options.technique).check(options, ranks);
  const GptConfig config = gpt_config(options.model);
  require(options.sequence_length <= config.context,
          fmt::format("--sequence-length {} with a context of {}", options.sequence_length,
                      config.context),
          "use no more tokens than the model's context");
}

TrainResult train(RankContext& context, const TrainOptions& options, const OnStep& on_step) {
  check(options, context.world.size());
  omp_set_num_threads(threads_per_rank(options, context.world.size()));
  return Trainer(context, options).run(on_step);
}

bool theory_holds(const TrainResult& result) {
  return std::ranges::all_of(
      result.theory, [](const TheoryRecord& t) { return !t.exact || t.expected == t.measured; });
}

}  // namespace lockstep
