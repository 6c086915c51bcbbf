#include "parallel/rank/step_counter.h"

#include "parallel/rank/own_time.h"

namespace lockstep {

StepCounter::StepCounter(RankContext& context, const TrainingRank& rank)
    : context_(context),
      rank_(rank),
      before_{.offload = rank.tier_traffic(),
              .attention_pairs = rank.attention_pairs(),
              .expert_rows = rank.expert_rows(),
              .exposed = rank.exposed(),
              .late = late_seconds(context.world)} {
  context.counters.reset();
  before_.seconds = context.world.transport().now_seconds();
}

CountedStep StepCounter::counted() const {
  CountedStep step{.seconds = context_.world.transport().now_seconds() - before_.seconds,
                   .exposed = rank_.exposed() - before_.exposed,
                   .late = late_seconds(context_.world) - before_.late};
  step.traffic = context_.counters.by_label();
  step.traffic.erase(report_label);
  step.offload = rank_.tier_traffic() - before_.offload;
  step.attention_pairs = rank_.attention_pairs() - before_.attention_pairs;
  if (before_.expert_rows) step.expert_rows = *rank_.expert_rows() - *before_.expert_rows;
  return step;
}

RankRecord record_of(const RankContext& context, const CountedStep& counted) {
  RankRecord record{.rank = context.world.rank(),
                    .traffic = counted.traffic,
                    .offload = counted.offload,
                    .attention_pairs = counted.attention_pairs,
                    .expert_rows = counted.expert_rows};
  for (int use = 0; use < memory_uses; ++use)
    record.peak_bytes[std::string(name_of(static_cast<MemoryUse>(use)))] =
        context.ledger.peak_bytes(static_cast<MemoryUse>(use));
  record.peak_bytes["total"] = context.ledger.peak_total_bytes();
  return record;
}

}  // namespace lockstep
