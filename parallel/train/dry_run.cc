#include "parallel/train/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/base/error.h"
#include "parallel/predict/workspace.h"
#include "parallel/tags/with_tags.h"
#include "parallel/train/trainer.h"

namespace lockstep {

CountedStep count_dry_step(RankContext& context, TrainingRank& rank, const Plan& plan,
                           const std::function<void()>& before_step) {
  CountedStep counted;
  // The last of them exchanges weights, if that happens once in so many steps.
  const int steps = std::max(2, plan.options.local_steps.value_or(1));
  for (int step = 0; step < steps; ++step) {
    const std::vector<Batch> batches = dry_batches(plan, context.world.rank(), step);
    context.world.transport().align();
    if (before_step) before_step();
    const Trace::Span span(context.trace, 0, fmt::format("step {}", step), "step");
    const StepCounter counter(context, rank);
    if (plan.options.optimizer_in_backward) rank.step_in_backward(plan.options.learning_rate);
    rank.accumulate(batches, plan.tokens_per_step(), 1);
    rank.gradient_norm();
    rank.update(plan.options.learning_rate, 1);
    rank.wait_for_parameters();
    counted = counter.counted();
  }
  return counted;
}

TrainResult dry_run(RankContext& context, const Plan& plan) {
  require(!plan.has_servers(), "parameter servers have no dry run",
          "its closed forms are those of a run; train it without --device none");
  const int rank = context.world.rank();
  const auto backend = with_tags(context, plan, std::make_unique<DryBackend>(context.ledger));
  const auto training = make_rank(context, plan, *backend);
  training->load_weights();
  const CountedStep counted = count_dry_step(context, *training, plan);
  if (plan.options.validation_fraction > 0)
    training->loss_sum(dry_batch(plan, rank, {.first = 0, .count = plan.validated_at_once()}, -1));

  RankRecord record = record_of(context, counted);
  record.in_flight = training->finish().in_flight;
  TrainResult result;
  result.theory = theory_of(training->prediction(), record);
  result.ranks.push_back(std::move(record));
  result.transport = context.world.transport().name();
  result.world_size = plan.ranks;
  result.parameters = plan.model.parameter_count();
  result.tokens_per_step = plan.tokens_per_step();
  return result;
}

std::int64_t check_tags_of(const Plan& plan, const std::vector<int>& ranks) {
  std::int64_t checked = 0;
  if (!has_tags(plan)) return checked;
  for (const int rank : ranks)
    launch_alone({.ranks = plan.ranks, .fault = {}, .device = &none_device()}, rank,
                 [&](RankContext& context) {
                   const auto backend = always_with_tags(
                       context, plan, std::make_unique<DryBackend>(context.ledger));
                   const auto training = make_rank(context, plan, *backend);
                   training->load_weights();
                   count_dry_step(context, *training, plan);
                   checked += backend->checked();
                 });
  return checked;
}

}  // namespace lockstep
