// Interleaved 1F1B: every rank has v virtual stages: rank r has the stages r, r + p, r + 2p, ... A
// micro-batch passes each rank v times, and a stage takes 1/v of the time. Narayanan et al.,
// "Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021.
//
//   makespan      m (tF + tB) + (p - 1)(tF + tB) / v      a bubble of (p - 1) / (v m + p - 1)
//   in flight     min(2 (p - rank - 1) + (v - 1) N + 1, m v), counted per stage
//   messages      v times those of 1F1B
//
// Micro-batches pass a rank's stages in groups of N: all of a group pass the first stage, then all
// pass the second, and so on. Megatron's N is p unless it is given; PyTorch divides m into
// max(1, m / p) rounds of equal size.
#include <fmt/format.h>

#include <algorithm>

#include "collectives/base/error.h"
#include "parallel/pipeline/schedules/schedules.h"

namespace lockstep {
namespace {

int megatron_group(const PipelineShape& x) { return x.group > 0 ? x.group : x.ranks; }
int rounds(const PipelineShape& x) { return std::max(1, x.micro_batches / x.ranks); }
int round_group(const PipelineShape& x) { return x.micro_batches / rounds(x); }

// Returns the virtual stage of each of a rank's forward passes, in order.
std::vector<int> turns(const PipelineShape& x, int group) {
  std::vector<int> result;
  for (int first = 0; first < x.micro_batches; first += group)
    for (int virtual_stage = 0; virtual_stage < x.virtual_stages; ++virtual_stage)
      result.insert(result.end(),
                    static_cast<std::size_t>(std::min(group, x.micro_batches - first)),
                    virtual_stage);
  return result;
}

// Forward passes before the rank alternates. The factor 2 is there because the steady state sends
// activations forward and gradients back in one exchange.
int warm_up(const PipelineShape& x, int group, int rank) {
  return std::min(2 * (x.ranks - rank - 1) + (x.virtual_stages - 1) * group,
                  x.micro_batches * x.virtual_stages);
}

Schedule interleave(const PipelineShape& x, int group) {
  Schedule schedule{.stages = x.stages(), .micro_batches = x.micro_batches, .by_rank = {}};
  const std::vector<int> turn = turns(x, group);
  for (int r = 0; r < x.ranks; ++r) {
    RankActions rank(schedule.by_rank.emplace_back());
    const auto stage = [&](int virtual_stage) { return virtual_stage * x.ranks + r; };
    const auto warm = static_cast<std::size_t>(warm_up(x, group, r));
    for (std::size_t i = 0; i < turn.size() + warm; ++i) {
      if (i < turn.size()) rank.forward(stage(turn[i]));
      if (i >= warm) rank.backward(stage(x.virtual_stages - 1 - turn[i - warm]));
    }
  }
  return schedule;
}

void check_megatron(const PipelineShape& x) {
  const int group = megatron_group(x), rest = x.micro_batches % group;
  require(x.ranks <= group && group <= x.micro_batches && (rest == 0 || rest >= x.ranks),
          fmt::format("interleaved on {} ranks with {} micro-batches in groups of {}", x.ranks,
                      x.micro_batches, group),
          "use ranks <= group <= micro-batches; the last group must also have at least as many as "
          "ranks");
}

void check_rounds(const PipelineShape& x) {
  require(x.micro_batches % rounds(x) == 0,
          fmt::format("interleaved-rounds on {} ranks with {} micro-batches in {} rounds", x.ranks,
                      x.micro_batches, rounds(x)),
          "micro-batches must be divisible by the rounds, max(1, micro-batches / ranks)");
}

// With fewer micro-batches than ranks there is one group, and ranks wait within it.
std::optional<Rational> interleaved_makespan(const PipelineShape& x, const PassTimes& t) {
  const Rational p = x.ranks, m = x.micro_batches, v = x.virtual_stages;
  const Rational missing = std::max(Rational(0), p - m);
  return (m + (p - 1) / v + missing * (v - 1) / v) * t.total();
}

constexpr std::string_view makespan_formula = "(m + (p - 1)/v + max(0, p - m)(v - 1)/v)(tF + tB)";
constexpr std::string_view in_flight_formula = "min(2(p - rank - 1) + (v - 1) N + 1, m v)";

int in_flight(const PipelineShape& x, int group, int rank) {
  return std::min(warm_up(x, group, rank) + 1, x.micro_batches * x.virtual_stages);
}

}  // namespace

ScheduleEntry interleaved_schedule() {
  return {.name = "interleaved",
          .summary = "1f1b over several stages on every rank, in Megatron's groups",
          .virtual_stages = 0,
          .make = [](const PipelineShape& x) { return interleave(x, megatron_group(x)); },
          .check = check_megatron,
          .makespan_formula = makespan_formula,
          .makespan = interleaved_makespan,
          .in_flight_formula = in_flight_formula,
          .in_flight = [](const PipelineShape& x, int rank) -> std::optional<int> {
            return in_flight(x, megatron_group(x), rank);
          }};
}

ScheduleEntry interleaved_rounds_schedule() {
  return {.name = "interleaved-rounds",
          .summary = "1f1b over several stages on every rank, in PyTorch's rounds",
          .virtual_stages = 0,
          .make = [](const PipelineShape& x) { return interleave(x, round_group(x)); },
          .check = check_rounds,
          .makespan_formula = makespan_formula,
          .makespan = interleaved_makespan,
          .in_flight_formula = in_flight_formula,
          .in_flight = [](const PipelineShape& x, int rank) -> std::optional<int> {
            return in_flight(x, round_group(x), rank);
          }};
}

}  // namespace lockstep
