// Naive pipeline, or layer model parallelism: one micro-batch at a time goes through all stages and
// back.
//
//   makespan      p m (tF + tB)      one rank works, the others wait: a bubble of (p - 1) / p
//   in flight     1
#include "parallel/pipeline/schedules/schedules.h"

namespace lockstep {
namespace {

Schedule naive(const PipelineShape& x) {
  Schedule schedule{.stages = x.ranks, .micro_batches = x.micro_batches, .by_rank = {}};
  for (int stage = 0; stage < x.ranks; ++stage) {
    RankActions rank(schedule.by_rank.emplace_back());
    while (rank.forwards(stage) < x.micro_batches) rank.forward(stage), rank.backward(stage);
  }
  return schedule;
}

}  // namespace

ScheduleEntry naive_schedule() {
  return {.name = "naive",
          .summary = "one micro-batch at a time through all stages and back",
          .make = naive,
          .makespan_formula = "p m (tF + tB)",
          .makespan = [](const PipelineShape& x, const PassTimes& t) -> std::optional<Rational> {
            return Rational(x.ranks) * x.micro_batches * t.total();
          },
          .in_flight_formula = "1",
          .in_flight = [](const PipelineShape&, int) -> std::optional<int> { return 1; }};
}

}  // namespace lockstep
