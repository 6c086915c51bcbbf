// Looped breadth-first: every rank has v virtual stages, as in interleaved 1F1B. All micro-batches
// pass its first stage, then all pass its second, and so on; backward passes run in reverse.
// Lamy-Poirier, "Breadth-first pipeline parallelism", 2022.
// Micro-batches go backward in the order in which they went forward. PyTorch's ScheduleLoopedBFS
// takes them from the last to the first, in the same time: see text.h.
//
//   makespan      m (tF + tB) + (p - 1)(tF + tB) / v      as interleaved 1F1B
//   in flight     m v, counted per stage, as GPipe
#include <algorithm>

#include "parallel/pipeline/schedules/schedules.h"

namespace lockstep {
namespace {

Schedule looped_bfs(const PipelineShape& x) {
  Schedule schedule{.stages = x.stages(), .micro_batches = x.micro_batches, .by_rank = {}};
  for (int r = 0; r < x.ranks; ++r) {
    RankActions rank(schedule.by_rank.emplace_back());
    for (int stage = r; stage < x.stages(); stage += x.ranks)
      while (rank.forwards(stage) < x.micro_batches) rank.forward(stage);
    for (int stage = x.stages() - x.ranks + r; stage >= 0; stage -= x.ranks)
      while (rank.backwards(stage) < x.micro_batches) rank.backward(stage);
  }
  return schedule;
}

}  // namespace

ScheduleEntry looped_bfs_schedule() {
  return {.name = "looped-bfs",
          .summary = "all micro-batches through each of a rank's stages in turn, then back",
          .virtual_stages = 0,
          .make = looped_bfs,
          .makespan_formula = "(m + (p - 1)/v + max(0, p - m)(v - 1)/v)(tF + tB)",
          .makespan = [](const PipelineShape& x, const PassTimes& t) -> std::optional<Rational> {
            const Rational p = x.ranks, m = x.micro_batches, v = x.virtual_stages;
            return (m + (p - 1) / v + std::max(Rational(0), p - m) * (v - 1) / v) * t.total();
          },
          .in_flight_formula = "m v",
          .in_flight = [](const PipelineShape& x, int) -> std::optional<int> {
            return x.micro_batches * x.virtual_stages;
          }};
}

}  // namespace lockstep
