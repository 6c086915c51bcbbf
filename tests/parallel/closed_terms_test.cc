// The planner's terms in closed form equal replays of schedules, and a ring's time.
#include <gtest/gtest.h>

#include "parallel/planner/exchange_time.h"
#include "parallel/planner/pipeline_time.h"

namespace lockstep {
namespace {

// Equal stages without messages: the replay of a schedule is a closed form. Messages of a rank with
// blocking sends are part of its passes.
TEST(ClosedTerms, OfAPipelineEqualReplays) {
  for (const int p : {1, 2, 5})
    for (const int v : {1, 3}) {
      if (p == 1 && v > 1) continue;
      const int m = 4 * p;
      const Schedule schedule =
          make_schedule(find_schedule(v > 1 ? "interleaved" : "1f1b"), {p, m, v});
      const std::vector<StagePasses> stages(static_cast<std::size_t>(p) * v,
                                            stage_passes(1.0 / v, 1.0 / v, 1.0 / v));
      PipelineLoad load = {.ranks = 1.0 * p,
                           .virtual_stages = 1.0 * v,
                           .micro_batches = 1.0 * m,
                           .slowest = 3,
                           .mean = 3};
      const double replayed = pipeline_times(schedule, stages, 0, false).makespan;
      EXPECT_NEAR(pipeline_seconds(load), replayed, 1e-6) << p << " " << v;
      load.slowest = 4;
      EXPECT_NEAR(pipeline_seconds(load), replayed + m, 1e-6) << "of the slowest rank";
      load.hop = 0.25;
      const double of_rank = p > 1 ? 2 * v * load.hop : 0, fills = (p - 1.0) / v * of_rank;
      EXPECT_NEAR(pipeline_seconds(load), replayed + m + fills, 1e-6) << p << " " << v;
      load.is_sender_busy = true;
      EXPECT_NEAR(pipeline_seconds(load), replayed + m + fills + m * of_rank, 1e-6);
    }
}

TEST(ClosedTerms, OfARing) {
  const GroupLinks links{.bytes_per_second = 100, .latency = 0.5};
  EXPECT_DOUBLE_EQ(all_reduce_seconds(400, 4, links), 0.5 + 6);
  EXPECT_DOUBLE_EQ(half_all_reduce_seconds(400, 4, links), 0.5 + 3);
  EXPECT_EQ(all_reduce_seconds(400, 1, links), 0);
}

}  // namespace
}  // namespace lockstep
