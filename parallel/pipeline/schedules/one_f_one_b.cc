// 1F1B: each stage fills the pipe, then alternates one forward and one backward pass. Narayanan et
// al., "Memory-efficient pipeline-parallel DNN training" (PipeDream-Flush), 2021.
//
//   makespan      (m + p - 1)(tF + tB)      as GPipe
//   in flight     min(p - rank, m)          where GPipe holds m: this is what 1F1B is for
#include <algorithm>

#include "parallel/pipeline/schedules/schedules.h"

namespace lockstep {
namespace {

// lab: one_f_one_b
Schedule one_f_one_b(const PipelineShape& x) {
  Schedule schedule{.stages = x.ranks, .micro_batches = x.micro_batches, .by_rank = {}};
  for (int stage = 0; stage < x.ranks; ++stage) {
    RankActions rank(schedule.by_rank.emplace_back());
    // lab: solution
    // The last stage can turn around at once; each one before it needs one more forward in flight.
    const int warm_up = std::min(x.ranks - 1 - stage, x.micro_batches);
    while (rank.forwards(stage) < warm_up) rank.forward(stage);
    while (rank.forwards(stage) < x.micro_batches) rank.forward(stage), rank.backward(stage);
    while (rank.backwards(stage) < x.micro_batches) rank.backward(stage);
    // lab: given
  }
  return schedule;
}
// lab: end

}  // namespace

ScheduleEntry one_f_one_b_schedule() {
  return {.name = "1f1b",
          .summary = "fills the pipe, then one forward and one backward pass in turn",
          .make = one_f_one_b,
          .makespan_formula = "(m + p - 1)(tF + tB)",
          .makespan = [](const PipelineShape& x, const PassTimes& t) -> std::optional<Rational> {
            return Rational(x.micro_batches + x.ranks - 1) * t.total();
          },
          .in_flight_formula = "min(p - rank, m)",
          .in_flight = [](const PipelineShape& x, int rank) -> std::optional<int> {
            return std::min(x.ranks - rank, x.micro_batches);
          }};
}

}  // namespace lockstep
