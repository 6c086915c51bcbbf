#include "bench/calibrate/engines.h"

#include <algorithm>

#include "bench/results/measure.h"
#include "collectives/base/cuda_module.h"
#include "parallel/predict/predict.h"
#include "parallel/train/trainer.h"

namespace lockstep {
namespace {

constexpr int allocating_steps = 2;

// The most that a rank's messages take, one after the other, as if all took the link between the first
// rank and the last; empty if there is no closed form.
std::optional<double> message_seconds(const Plan& plan, const LinkModel& links) {
  const Link& link = links.link(0, plan.ranks - 1);
  double most = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const std::optional<Volume> sent = predict(plan, rank).total;
    if (!sent) return {};
    most = std::max(most, static_cast<double>(sent->sent_messages) * link.alpha_s +
                              static_cast<double>(sent->sent_bytes) * link.beta_s_per_byte);
  }
  return most;
}

}  // namespace

double EngineSeconds::run() const { return percentile(steps, 0.5); }
double EngineSeconds::noise() const {
  return (percentile(steps, 0.75) - percentile(steps, 0.25)) / 2 / run();
}

std::optional<double> closed_form_seconds(const Plan& plan, const PredictedStep& spent,
                                          int processors, Clock clock, const LinkModel& links) {
  const double busy = spent.compute_seconds + spent.copy_seconds;
  const std::optional<double> bubble = predict(plan, 0).bubble_fraction;
  if (plan.has_pipeline() && !bubble) return {};
  const double with_bubble = busy / (1 - bubble.value_or(0));
  if (clock == Clock::wall)
    return std::max(with_bubble + spent.communication_seconds,
                    (busy + spent.communication_seconds) * plan.ranks / processors);
  const std::optional<double> messages = message_seconds(plan, links);
  if (!messages) return {};
  return with_bubble + *messages;
}

EngineSeconds engine_seconds(const Plan& plan, const MachineProfile& profile, Clock clock,
                             const LinkModel& links, int steps) {
  const PredictedStep predicted =
      predict_step(plan, profile, clock, links, profile.transport_of_threads());
  EngineSeconds seconds{.closed_form = closed_form_seconds(
                            plan, predicted, profile.processors(plan.ranks), clock, links),
                        .virtual_time = predicted.seconds};
  Plan trained = plan;
  trained.options.steps = steps + allocating_steps;
  trained.options.threads = 1;
  launch({.ranks = plan.ranks,
          .fault = {},
          .clock = clock,
          .links = links,
          .device = &device_named(profile.is_of_gpu() ? "cuda" : "host")},
         [&](RankContext& context) {
           // Only rank 0 has a result.
           const TrainResult result = train(context, trained);
           for (std::size_t i = allocating_steps; i < result.steps.size(); ++i)
             seconds.steps.push_back(result.steps[i].seconds);
         });
  return seconds;
}

}  // namespace lockstep
