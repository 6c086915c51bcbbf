// ZB-V: two virtual stages on every rank, placed like a V: rank r has stages r and 2p - 1 - r, so
// rank 0 has both the first stage and the last. Each micro-batch returns to the rank where it
// began, and all ranks hold equally many activations. Qi et al., "Pipeline parallelism with
// controllable memory", 2024.
//
//   makespan      m tS + (p - 1) tF / 2      where tF = tI = tW: no rank waits once it has begun
//   unfinished    2p half stages on every rank: p micro-batches, as on rank 0 of 1F1B
#include <fmt/format.h>

#include <algorithm>

#include "collectives/base/error.h"
#include "parallel/pipeline/schedules/schedules.h"

namespace lockstep {
namespace {

// Writes one rank's actions. The pattern needs at least 2p - 1 micro-batches; with fewer, the
// missing ones are skipped.
void turns(RankActions& rank, const PipelineShape& x, int r, int micro_batches) {
  const int p = x.ranks, down = r, up = 2 * p - 1 - r;
  const auto forward_and_back = [&] {
    rank.forward(up), rank.input_gradient(up), rank.weight_gradient(up);
  };
  for (int i = 0; i < 2 * (p - r) - 1; ++i) rank.forward(down);
  for (int i = 0; i < r; ++i) rank.forward(up), rank.forward(down);
  for (int i = 0; i < p - r; ++i) forward_and_back();
  while (rank.forwards(up) < micro_batches) {
    if (rank.forwards(down) < micro_batches) rank.forward(down);
    rank.input_gradient(down), rank.weight_gradient(down);
    forward_and_back();
  }
  for (int i = 0; i < r; ++i) rank.input_gradient(down), rank.input_gradient(up);
  for (int i = 0; i < p - r; ++i) rank.input_gradient(down), rank.weight_gradient(down);
  while (rank.weight_gradients(up) < micro_batches) rank.weight_gradient(up);
  while (rank.weight_gradients(down) < micro_batches) rank.weight_gradient(down);
}

Schedule zb_v(const PipelineShape& x) {
  Schedule schedule{.stages = x.stages(), .micro_batches = x.micro_batches, .by_rank = {}};
  for (int r = 0; r < x.ranks; ++r) {
    std::vector<Action>& actions = schedule.by_rank.emplace_back();
    RankActions rank(actions);
    turns(rank, x, r, std::max(2 * x.ranks - 1, x.micro_batches));
    std::erase_if(actions, [&](const Action& a) { return a.micro_batch >= x.micro_batches; });
  }
  return schedule;
}

// With fewer than 2p - 1 micro-batches, every rank also plans the missing ones, and drops them.
void check_zb_v(const PipelineShape& x) {
  constexpr double most_actions = 5e7;
  require(2.0 * x.ranks * std::max(2.0 * x.ranks - 1, 1.0 * x.micro_batches) <= most_actions,
          fmt::format("zb-v on {} ranks", x.ranks), "use at most 3500 ranks");
}

}  // namespace

ScheduleEntry zb_v_schedule() {
  return {.name = "zb-v",
          .summary = "two stages on every rank, placed like a V; weight gradients fill the bubble",
          .virtual_stages = 2,
          .splits_backward = true,
          .make = zb_v,
          .check = check_zb_v,
          .makespan_formula = "m tS + (p - 1) tF/2, tF = tI = tW, m >= 2p - 1",
          .makespan = [](const PipelineShape& x, const PassTimes& t) -> std::optional<Rational> {
            if (t.forward != t.input_gradient || t.forward != t.weight_gradient ||
                x.micro_batches < 2 * x.ranks - 1)
              return {};
            return x.micro_batches * t.total() + (x.ranks - 1) * t.forward / 2;
          },
          .in_flight_formula = "2p, m >= 2p - 1",
          .in_flight = [](const PipelineShape& x, int) -> std::optional<int> {
            if (x.micro_batches < 2 * x.ranks - 1) return {};
            return 2 * x.ranks;
          }};
}

}  // namespace lockstep
