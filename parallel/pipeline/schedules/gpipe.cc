// GPipe: all forward passes, then all backward passes. Huang et al., "GPipe", 2019.
//
//   makespan      (m + p - 1)(tF + tB)      a bubble of (p - 1) / (m + p - 1)
//   in flight     m on every rank
//
// The backward passes run in the order of the forward passes, so gradients are summed in the same
// order as without a pipeline. The variant "lifo" runs them in reverse order, in the same time.
#include "parallel/pipeline/schedules/schedules.h"

namespace lockstep {
namespace {

// lab: gpipe
Schedule gpipe(const PipelineShape& x) {
  Schedule schedule{.stages = x.ranks, .micro_batches = x.micro_batches, .by_rank = {}};
  for (int stage = 0; stage < x.ranks; ++stage) {
    RankActions rank(schedule.by_rank.emplace_back());
    // lab: solution
    while (rank.forwards(stage) < x.micro_batches) rank.forward(stage);
    while (rank.backwards(stage) < x.micro_batches) rank.backward(stage);
    // lab: given
  }
  return schedule;
}
// lab: end

Schedule gpipe_lifo(const PipelineShape& x) {
  Schedule schedule = gpipe(x);
  for (std::vector<Action>& actions : schedule.by_rank)
    for (Action& action : actions)
      if (action.pass == Pass::backward)
        action.micro_batch = x.micro_batches - 1 - action.micro_batch;
  return schedule;
}

std::optional<Rational> makespan(const PipelineShape& x, const PassTimes& t) {
  return Rational(x.micro_batches + x.ranks - 1) * t.total();
}

std::optional<int> in_flight(const PipelineShape& x, int) { return x.micro_batches; }

}  // namespace

ScheduleEntry gpipe_schedule() {
  return {.name = "gpipe",
          .summary = "all forward passes, then all backward passes, first in first out",
          .make = gpipe,
          .makespan_formula = "(m + p - 1)(tF + tB)",
          .makespan = makespan,
          .in_flight_formula = "m",
          .in_flight = in_flight};
}

ScheduleEntry gpipe_lifo_schedule() {
  return {.name = "gpipe-lifo",
          .summary = "all forward passes, then all backward passes, last in first out",
          .make = gpipe_lifo,
          .makespan_formula = "(m + p - 1)(tF + tB)",
          .makespan = makespan,
          .in_flight_formula = "m",
          .in_flight = in_flight};
}

}  // namespace lockstep
