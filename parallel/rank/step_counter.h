// Counts what a rank sends, moves and computes in one step. All that measure or simulate steps use it,
// so a step is counted in one way.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "collectives/base/report_label.h"
#include "collectives/transport/launch/launch.h"
#include "parallel/rank/training_rank.h"

namespace lockstep {

struct CountedStep {
  int step = 0;
  bool skipped = false;  // then its traffic cannot be predicted, because skipped steps send less
  std::map<std::string, Volume, std::less<>> traffic;
  TierTraffic offload = {};
  std::int64_t attention_pairs = 0;
  std::optional<std::int64_t> expert_rows = {};
  double seconds = 0;           // by the rank's clock
  ExposedSeconds exposed = {};  // of them, spent waiting
  double late = 0;              // of these, in which this rank did not run
};

class StepCounter {
 public:
  // The step begins now, and the counters of `context` restart. Both arguments must outlive it.
  StepCounter(RankContext& context, const TrainingRank& rank);
  // The step so far; the caller knows its number and whether it was skipped.
  CountedStep counted() const;

 private:
  RankContext& context_;
  const TrainingRank& rank_;
  CountedStep before_;
};

// This rank's record: what was counted in a step, and its peak memory so far.
RankRecord record_of(const RankContext& context, const CountedStep& counted);

}  // namespace lockstep
