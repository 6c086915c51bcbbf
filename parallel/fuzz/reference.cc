#include "parallel/fuzz/reference.h"

#include <omp.h>

#include <cmath>

#include "collectives/base/device.h"
#include "models/gpt/weights.h"
#include "parallel/checkpoint/box.h"
#include "parallel/fuzz/kept.h"
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
        rank_(make_serial(context, plan, training_.backend())),
        is_scaled_(plan.options.dtype != DType::f64 && plan.options.loss_scaling != "none") {
    omp_set_num_threads(1);
    rank_->load_weights();
  }

  ReferenceRun run(const std::map<int, StepTaken>& taken) {
    std::size_t plan = 0;
    for (const auto& [number, step] : taken) {
      while (fuzz_case_.plans[plan].options.steps <= number) ++plan;
      const TrainOptions& options = fuzz_case_.plans[plan].options;
      take(number, step, options);
      const int steps = number + 1;
      const bool is_last = steps == options.steps;
      if (is_last) run_.weights[steps] = gathered(*rank_, Gathered::values, whole_);
      const bool is_due = options.eval_interval > 0 && steps % options.eval_interval == 0;
      if (options.validation_fraction > 0 && (is_due || is_last))
        run_.validation[steps] = validation_loss();
    }
    return std::move(run_);
  }

 private:
  void take(int number, const StepTaken& taken, const TrainOptions& options) {
    if (is_scaled_)
      run_.overflows[number] = {.above = overflows(number, taken.scale * far),
                                .below = overflows(number, taken.scale / far)};
    const double scale = is_scaled_ && !taken.skipped ? taken.scale : 1;
    CaseStep& step = run_.steps[number];
    step.loss = accumulate(number, scale);
    if (taken.skipped) return;
    step.gradients = gathered(*rank_, Gathered::gradients, whole_, 1 / scale);
    if (compresses(options) && number >= options.exchange_warm_up) {
      step.compressed = read_values(files_.gradients(number), step.gradients.size());
      replace_gradients(step.compressed, scale);
    }
    step.norm = rank_->gradient_norm() / scale;
    rank_->update(learning_rate(options, number), clip_factor(options, step.norm) / scale);
  }
  // By others, times a factor.
  void replace_gradients(const Values& others, double factor) {
    for (const TrainingState& state : rank_->states()) {
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
    return !std::isfinite(rank_->gradient_norm());
  }
  double accumulate(int number, double scale) {
    return rank_->accumulate(training_.micro_batches(number), training_.targets(number), scale);
  }

  // Takes one sequence after another.
  double validation_loss() {
    const Dataset& data = training_.dataset();
    const int length = plan_.tokens_of_sequence();
    double sum = 0;
    for (int row = 0; row < data.validation_sequences(length); ++row)
      sum += rank_->loss_sum(data.validation_batch(row, 1, length));
    return sum / static_cast<double>(data.validation_targets(length));
  }

  const FuzzCase& fuzz_case_;
  const FuzzFiles& files_;
  const Plan& plan_;
  Training training_;
  const std::vector<Parameter> whole_;
  std::unique_ptr<TrainingRank> rank_;
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
