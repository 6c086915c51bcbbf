#include "parallel/pipeline/bubble.h"

#include <algorithm>
#include <cmath>

#include "collectives/all_reduce/all_reduce.h"
#include "parallel/pipeline/simulate.h"

namespace lockstep {
namespace {

// In billionths: of seconds or of units.
Rational exact(double seconds) {
  return {static_cast<std::int64_t>(std::llround(seconds * 1e9)), 1'000'000'000};
}

constexpr Pass passes[] = {Pass::forward, Pass::backward, Pass::input_gradient,
                           Pass::weight_gradient};

// The mean time of each pass of each stage, known to all ranks. What backward passes in one piece
// took is shared out as those in two pieces were; where there are none, it stands in the gradient
// of the input.
std::vector<PassTimes> mean_times(Communicator& world, const Schedule& schedule,
                                  const Executor& executor) {
  const std::size_t kinds = std::size(passes);
  std::vector<double> seconds(kinds * static_cast<std::size_t>(schedule.stages));
  for (const auto& [stage, times] : executor.stage_seconds())
    for (std::size_t k = 0; k < kinds; ++k)
      if (const auto time = times.find(passes[k]); time != times.end())
        seconds[kinds * static_cast<std::size_t>(stage) + k] = time->second;
  all_reduce(world, host_slice(std::span(seconds)), ReduceOp::sum);
  std::vector<PassTimes> means;
  const double runs = static_cast<double>(executor.counted_runs()) * schedule.micro_batches;
  for (std::size_t i = 0; i < seconds.size(); i += kinds) {
    const double backward = seconds[i + 1], input = seconds[i + 2], weight = seconds[i + 3];
    const double to_weight = weight > 0 ? backward * weight / (input + weight) : 0;
    means.push_back({.forward = exact(seconds[i] / runs),
                     .input_gradient = exact((input + backward - to_weight) / runs),
                     .weight_gradient = exact((weight + to_weight) / runs)});
  }
  return means;
}

// Of a rank: the mean of its ranks' times, as the closed forms know only one.
PassTimes of_a_rank(const std::vector<PassTimes>& stages, int ranks) {
  PassTimes sum{.forward = 0, .input_gradient = 0, .weight_gradient = 0};
  for (const PassTimes& stage : stages) {
    sum.forward += stage.forward;
    sum.input_gradient += stage.input_gradient;
    sum.weight_gradient += stage.weight_gradient;
  }
  return {.forward = sum.forward / ranks,
          .input_gradient = sum.input_gradient / ranks,
          .weight_gradient = sum.weight_gradient / ranks};
}

}  // namespace

BubbleRecord measured_bubble(Communicator& world, const Schedule& schedule,
                             const Executor& executor, const std::string& name,
                             const PipelineShape& shape, Count message_bytes) {
  double busy = executor.busy_seconds(), makespan = executor.running_seconds();
  all_reduce(world, host_slice(std::span(&busy, 1)), ReduceOp::sum);
  all_reduce(world, host_slice(std::span(&makespan, 1)), ReduceOp::max);
  const std::vector<PassTimes> times = mean_times(world, schedule, executor);
  const Rational hop =
      exact(world.transport().links().between.seconds(static_cast<double>(message_bytes)));
  BubbleRecord bubble{
      .fraction = 1 - busy / (world.size() * makespan),
      .simulated_fraction = value_of(simulate_stages(schedule, times, hop).bubble_fraction())};
  if (name.empty()) return bubble;
  const ScheduleEntry& entry = find_schedule(name);
  const PassTimes mean = of_a_rank(times, world.size());
  if (const auto expected = entry.makespan(complete(entry, shape), mean))
    bubble.expected_fraction =
        1 - value_of(Rational(schedule.micro_batches) * mean.total() / *expected);
  return bubble;
}

}  // namespace lockstep
