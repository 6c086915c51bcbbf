#include "parallel/fuzz/reference.h"

#include <omp.h>

#include <cmath>

#include "collectives/base/device.h"
#include "models/gpt/weights.h"
#include "parallel/checkpoint/box.h"
#include "parallel/fuzz/kept.h"
#include "parallel/fuzz/replicas_apart.h"
#include "parallel/fuzz/rounded_passes.h"
#include "parallel/plan/loss_scale.h"
#include "parallel/serial/serial.h"
#include "parallel/tags/with_tags.h"

namespace lockstep {
namespace {

// The factor by which the scales of ReferenceRun::Overflow differ from a step's.
constexpr double far = 64;

// Returns the serial plan for a plan's sequences.
Plan serial_plan(const FuzzCase& fuzz_case, const FuzzFiles& files, DType dtype) {
  FuzzCase serial{.seed = fuzz_case.seed, .model = fuzz_case.model, .plans = {{}}};
  take_training(serial.last().options, fuzz_case.last().options);
  serial.last().options.dtype = dtype;
  serial.last().options.steps = fuzz_case.last().options.steps;
  return plan_of(serial, 0, files);
}

class SerialRun {
 public:
  SerialRun(RankContext& context, const FuzzCase& fuzz_case, const FuzzFiles& files,
            const Plan& plan)
      : fuzz_case_(fuzz_case),
        files_(files),
        plan_(plan),
        training_(context, plan, backend_with_tags(context, plan)),
        whole_(trained_parameters(plan.model, lora_config(plan.options))),
        fuzzed_(plan_of(fuzz_case.last(), fuzz_case.model)),
        passes_(fuzzed_),
        is_scaled_(plan.options.dtype != DType::f64 && plan.options.loss_scaling != "none") {
    omp_set_num_threads(1);
    for (int replica = 0; replica < fuzzed_.replicas_apart(); ++replica)
      ranks_.emplace_back(make_serial(context, plan, training_.backend()))->load_weights();
    if (fuzzed_.options.local_steps) apart_.emplace(ranks_, fuzzed_.options);
  }

  ReferenceRun run(const std::map<int, StepTaken>& taken) {
    std::size_t plan = 0;
    for (const auto& [number, step] : taken) {
      while (fuzz_case_.plans[plan].options.steps <= number) ++plan;
      const TrainOptions& options = fuzz_case_.plans[plan].options;
      passes_ = plan_of(fuzz_case_.plans[plan], fuzz_case_.model);
      take(number, step, options);
      const int steps = number + 1;
      const bool is_last = steps == options.steps;
      if (is_last)
        run_.weights[steps] =
            apart_ ? apart_->common() : gathered(*ranks_.front(), Gathered::values, whole_);
      const bool is_due = options.eval_interval > 0 && steps % options.eval_interval == 0;
      if (options.validation_fraction > 0 && (is_due || is_last))
        run_.validation[steps] = validation_loss();
    }
    for (const auto& rank : ranks_)
      run_.of_replicas.push_back(gathered(*rank, Gathered::values, whole_));
    return std::move(run_);
  }

 private:
  void take(int number, const StepTaken& taken, const TrainOptions& options) {
    if (is_scaled_)
      run_.overflows[number] = {.above = overflows(number, taken.scale * far),
                                .below = overflows(number, taken.scale / far)};
    double scale = is_scaled_ && !taken.skipped ? taken.scale : 1;
    // Sums in another order may overflow with the scale with which the plan's did not.
    if (is_scaled_ && !taken.skipped && overflows(number, scale)) scale /= far;
    CaseStep& step = run_.steps[number];
    step.loss = accumulate(number, scale);
    if (taken.skipped) return;
    step.gradients = gathered(*ranks_.front(), Gathered::gradients, whole_, 1 / scale);
    if (compresses(options) && number >= options.exchange_warm_up) {
      step.compressed = read_values(files_.gradients(number), step.gradients.size());
      replace_gradients(step.compressed, scale);
    }
    for (const auto& rank : ranks_) {
      const double norm = rank->gradient_norm() / scale;
      step.norm = std::max(step.norm, norm);
      // What was not sent must not change the step.
      if (options.exchange == "galore") replace_gradients(step.gradients, scale);
      rank->update(learning_rate(options, number), clip_factor(options, norm) / scale);
    }
    if (apart_) apart_->after_step(number + 1);
  }
  // By others, times a factor.
  void replace_gradients(const Values& others, double factor) {
    for (const TrainingState& state : ranks_.front()->states()) {
      const Slice flat = state.parameters->gradients();
      Values wide = widened(flat);
      for_each_counted_run(
          *state.parameters, whole_,
          [&](std::size_t number, Count in_whole, Count in_part, Count count) {
            for (Count i = 0; i < count; ++i)
              wide[static_cast<std::size_t>(in_part + i)] =
                  factor * others[static_cast<std::size_t>(whole_[number].offset + in_whole + i)];
          });
      host_device().convert(flat, host_slice(std::span(wide)));
    }
  }
  bool overflows(int number, double scale) {
    accumulate(number, scale);
    return !std::isfinite(ranks_.front()->gradient_norm());
  }
  double accumulate(int number, double scale) {
    const Share all{.count = plan_.options.global_batch};
    const auto replicas = static_cast<int>(ranks_.size());
    const RoundedPasses rounded(passes_, whole_, ranks_);
    double loss = 0;
    for (int replica = 0; replica < replicas; ++replica) {
      const Batch batch = training_.batch(number, all.part(replica, replicas));
      loss += ranks_[static_cast<std::size_t>(replica)]->accumulate(
          std::span(&batch, 1), training_.targets(number), scale * replicas);
    }
    return loss;
  }

  // Takes one sequence after another; replicas that take their steps alone take blocks of them in turn.
  double validation_loss() {
    const Dataset& data = training_.dataset();
    const int length = plan_.tokens_of_sequence();
    const RoundedPasses rounded(passes_, whole_, ranks_);
    double sum = 0;
    for (int row = 0; row < data.validation_sequences(length); ++row) {
      const auto block = static_cast<std::size_t>(row / std::max(1, fuzzed_.validated_at_once()));
      sum += ranks_[block % ranks_.size()]->loss_sum(data.validation_batch(row, 1, length));
    }
    return sum / static_cast<double>(data.validation_targets(length));
  }

  const FuzzCase& fuzz_case_;
  const FuzzFiles& files_;
  const Plan& plan_;
  Training training_;
  const std::vector<Parameter> whole_;
  const Plan fuzzed_;
  Plan passes_;  // the plan whose step is taken
  std::vector<std::unique_ptr<TrainingRank>>
      ranks_;  // one, or replicas that take their steps alone
  std::optional<ReplicasApart> apart_;
  bool is_scaled_;
  ReferenceRun run_;
};

}  // namespace

ReferenceRun serial_run(const FuzzCase& fuzz_case, const FuzzFiles& files, DType dtype,
                        const std::map<int, StepTaken>& taken) {
  const Plan plan = serial_plan(fuzz_case, files, dtype);
  ReferenceRun run;
  launch_alone({.fault = {}}, 0, [&](RankContext& context) {
    run = SerialRun(context, fuzz_case, files, plan).run(taken);
  });
  return run;
}

}  // namespace lockstep
