#include "parallel/fuzz/case_run.h"

#include <limits>

#include "collectives/base/device.h"
#include "models/gpt/weights.h"
#include "parallel/checkpoint/box.h"
#include "parallel/fuzz/kept.h"

namespace lockstep {
namespace {

class CaseWatch final : public TrainingWatch {
 public:
  CaseWatch(Communicator& world, const Plan& plan, RunOnRank& run)
      : world_(world),
        plan_(plan),
        whole_(trained_parameters(plan.model, lora_config(plan.options))),
        run_(run) {}

  void on_gradients(TrainingRank& rank, const StepRecord& step) override {
    run_.steps[step.step].gradients =
        gathered(rank, Gathered::gradients, whole_, 1 / step.loss_scale);
  }
  void after_step(const StepRecord& step) override {
    run_.steps[step.step].loss = step.loss;
    run_.steps[step.step].norm = step.grad_norm;
    run_.taken[step.step] = {.scale = step.loss_scale, .skipped = step.skipped};
  }
  void at_end(TrainingRank& rank, const CountedStep& counted,
              const Prediction& prediction) override {
    run_.counted = counted;
    run_.prediction = prediction;
    rank.wait_for_parameters();
    run_.weights[plan_.options.steps] = gathered(rank, Gathered::values, whole_);
    for (const TrainingState& state : rank.states()) {
      const Parameters* const own = state.parameters;
      for (int i = 0; own && i < static_cast<int>(own->list().size()); ++i)
        if (own->has_value(i))
          run_.own.push_back({own->list()[static_cast<std::size_t>(i)], widened(own->value(i))});
    }
    if (plan_.compresses_gradients()) run_.kept = kept_by_all(world_, rank, plan_, whole_);
  }

 private:
  Communicator& world_;
  const Plan& plan_;
  const std::vector<Parameter> whole_;
  RunOnRank& run_;
};

}  // namespace

RunOnRank run_case(RankContext& context, const Plan& plan) {
  RunOnRank run;
  CaseWatch watch(context.world, plan, run);
  const TrainResult result = train(context, plan, {}, &watch);
  for (const ValidationRecord& validation : result.validation)
    run.validation[validation.step] = validation.loss;
  run.theory = result.theory;
  return run;
}

Values widened(Slice numbers) {
  Values wide(static_cast<std::size_t>(numbers.count));
  host_device().convert(host_slice(std::span(wide)), numbers);
  return wide;
}

Values gathered(TrainingRank& rank, Gathered what, const std::vector<Parameter>& whole,
                double factor) {
  const Parameter& last = whole.back();
  Values all(static_cast<std::size_t>(last.offset + last.count),
             std::numeric_limits<double>::quiet_NaN());
  rank.gather(what, [&](const Parameters& part, Slice flat) {
    const Values own = widened(flat);
    for_each_counted_run(part, whole,
                         [&](std::size_t number, Count in_whole, Count in_part, Count count) {
                           for (Count i = 0; i < count; ++i)
                             all[static_cast<std::size_t>(whole[number].offset + in_whole + i)] =
                                 factor * own[static_cast<std::size_t>(in_part + i)];
                         });
  });
  return all;
}

}  // namespace lockstep
