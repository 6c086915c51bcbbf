// Zero-bubble schedules split the backward pass in two. The gradient of the input goes to the
// previous stage at once; the gradients of the weights, which no stage waits for, fill idle time.
// Qi et al., "Zero bubble pipeline parallelism", 2023.
//
//                 H1                               H2
//   makespan      m tS + (p - 1)(tF + tI - tW)     m tS + (p - 1) max(tF, tF + tI - 2 tW)
//   in flight     min(p - rank, m)                 min(2 (p - rank) - 1, m)
//
// where tS = tF + tI + tW. H1 holds no more activations than 1F1B, H2 about twice as many. A rank
// of H2 never waits between its first action and its last; the remaining bubble is that ranks start
// one after another.
#include <algorithm>

#include "parallel/pipeline/schedules/schedules.h"

namespace lockstep {
namespace {

// lab: zero_bubble
// Forward passes of the warm-up, and how many input gradients the weight gradients lag behind.
struct Delays {
  int warm_up, weight_gradients;
};

Schedule zero_bubble(const PipelineShape& x, Delays (*delays)(const PipelineShape&, int)) {
  Schedule schedule{.stages = x.ranks, .micro_batches = x.micro_batches, .by_rank = {}};
  for (int stage = 0; stage < x.ranks; ++stage) {
    RankActions rank(schedule.by_rank.emplace_back());
    const Delays delay = delays(x, stage);
    // lab: solution
    while (rank.forwards(stage) < std::min(delay.warm_up, x.micro_batches)) rank.forward(stage);
    while (rank.backwards(stage) < x.micro_batches) {
      if (rank.forwards(stage) < x.micro_batches) rank.forward(stage);
      rank.input_gradient(stage);
      if (rank.backwards(stage) > delay.weight_gradients) rank.weight_gradient(stage);
    }
    while (rank.weight_gradients(stage) < x.micro_batches) rank.weight_gradient(stage);
    // lab: given
  }
  return schedule;
}

Delays h1(const PipelineShape& x, int stage) {
  // lab: solution
  return {.warm_up = x.ranks - 1 - stage, .weight_gradients = stage};
  // lab: given
}
Delays h2(const PipelineShape& x, int stage) {
  // lab: solution
  return {.warm_up = 2 * (x.ranks - 1 - stage), .weight_gradients = 2 * stage};
  // lab: given
}

Schedule zb_h1(const PipelineShape& x) { return zero_bubble(x, h1); }
Schedule zb_h2(const PipelineShape& x) { return zero_bubble(x, h2); }
// lab: end

}  // namespace

ScheduleEntry zb_h1_schedule() {
  return {
      .name = "zb-h1",
      .summary =
          "1f1b whose weight gradients fill the bubble, with as many micro-batches in flight",
      .splits_backward = true,
      .make = zb_h1,
      .makespan_formula = "m tS + (p - 1)(tF + tI - tW), tW <= tF, tW <= tI, m >= p",
      .makespan = [](const PipelineShape& x, const PassTimes& t) -> std::optional<Rational> {
        if (t.weight_gradient > std::min(t.forward, t.input_gradient) || x.micro_batches < x.ranks)
          return {};
        return x.micro_batches * t.total() +
               (x.ranks - 1) * (t.forward + t.input_gradient - t.weight_gradient);
      },
      .in_flight_formula = "min(p - rank, m)",
      .in_flight = [](const PipelineShape& x, int rank) -> std::optional<int> {
        return std::min(x.ranks - rank, x.micro_batches);
      }};
}

ScheduleEntry zb_h2_schedule() {
  return {
      .name = "zb-h2",
      .summary = "zb-h1 with twice the micro-batches in flight: no rank waits once it has begun",
      .splits_backward = true,
      .make = zb_h2,
      .makespan_formula =
          "m tS + (p - 1) max(tF, tF + tI - 2 tW), tW <= tF, 2 tW <= tF + tI, m >= 2p - 1",
      .makespan = [](const PipelineShape& x, const PassTimes& t) -> std::optional<Rational> {
        const Rational left = t.forward + t.input_gradient - 2 * t.weight_gradient;
        if (t.weight_gradient > t.forward || left < 0 || x.micro_batches < 2 * x.ranks - 1)
          return {};
        return x.micro_batches * t.total() + (x.ranks - 1) * std::max(t.forward, left);
      },
      .in_flight_formula = "min(2(p - rank) - 1, m)",
      .in_flight = [](const PipelineShape& x, int rank) -> std::optional<int> {
        return std::min(2 * (x.ranks - rank) - 1, x.micro_batches);
      }};
}

}  // namespace lockstep
