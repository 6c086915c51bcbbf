#include "parallel/train/dry_run.h"

#include <utility>

#include "collectives/base/error.h"
#include "parallel/predict/workspace.h"
#include "parallel/rank/report.h"
#include "parallel/tags/with_tags.h"
#include "parallel/train/trainer.h"

namespace lockstep {
void take_dry_step(TrainingRank& rank, const Plan& plan, std::span<const Batch> micro_batches) {
  rank.accumulate(micro_batches, plan.tokens_per_step(), 1);
  rank.gradient_norm();
  rank.update(plan.options.learning_rate, 1);
  rank.wait_for_parameters();
}

TrainResult dry_run(RankContext& context, const Plan& plan) {
  require(!plan.has_servers(), "parameter servers have no dry run",
          "its closed forms are those of a run; train it without --device none");
  constexpr int steps = 2;
  const int rank = context.world.rank();
  const auto backend = with_tags(context, plan, std::make_unique<DryBackend>(context.ledger));
  const auto training = make_rank(context, plan, *backend);
  training->load_weights();
  TierTraffic before;  // the last step
  std::int64_t pairs_before = 0;
  for (int step = 0; step < steps; ++step) {
    context.counters.reset();
    before = training->tier_traffic();
    pairs_before = training->attention_pairs();
    take_dry_step(*training, plan, dry_batches(plan, rank, step));
  }
  const auto traffic = context.counters.by_label();
  const TierTraffic offload = training->tier_traffic() - before;
  const std::int64_t pairs = training->attention_pairs() - pairs_before;
  if (plan.options.validation_fraction > 0)
    training->loss_sum(dry_batch(plan, rank, {.first = 0, .count = plan.validated_at_once()}, -1));

  RankRecord record = record_of(context, traffic);
  record.offload = offload;
  record.attention_pairs = pairs;
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
                   for (int step = 0; step < 2; ++step)
                     take_dry_step(*training, plan, dry_batches(plan, rank, step));
                   checked += backend->checked();
                 });
  return checked;
}

}  // namespace lockstep
