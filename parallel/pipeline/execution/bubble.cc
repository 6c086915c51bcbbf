#include "parallel/pipeline/execution/bubble.h"

#include <cmath>
#include <map>
#include <numeric>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/broadcast/broadcast.h"
#include "parallel/pipeline/simulator/simulate.h"

namespace lockstep {
namespace {

// Exact to a billionth of a second or unit.
Rational exact(double seconds) {
  return {static_cast<std::int64_t>(std::llround(seconds * 1e9)), 1'000'000'000};
}

// The times of the passes of one run, in seconds, by rank and index in its schedule.
using Passes = std::vector<std::vector<double>>;

// Returns the times of all ranks' passes, on every rank.
Passes passes_of_all(Communicator& world, const Schedule& schedule,
                     const std::vector<double>& own) {
  Passes passes;
  for (const auto& actions : schedule.by_rank) passes.emplace_back(actions.size());
  passes[static_cast<std::size_t>(world.rank())] = own;
  for (int rank = 0; rank < world.size(); ++rank)
    broadcast(world, host_slice(std::span(passes[static_cast<std::size_t>(rank)])), rank);
  return passes;
}

Timeline replayed(const Schedule& schedule, const Passes& passes, const Rational& hop) {
  std::vector<std::vector<Rational>> times;
  for (const auto& of_rank : passes) {
    auto& exact_times = times.emplace_back();
    for (const double seconds : of_rank) exact_times.push_back(exact(seconds));
  }
  return simulate_actions(schedule, times, hop);
}

// The mean time of each pass of each stage. Whole backward passes are divided in proportion to the
// split ones; if there are none, all their time counts as the gradient of the input.
std::vector<PassTimes> mean_times(const Schedule& schedule, const std::vector<Passes>& runs) {
  using Seconds = std::map<Pass, double>;
  std::vector<Seconds> stages(static_cast<std::size_t>(schedule.stages));
  for (const Passes& passes : runs)
    for (std::size_t r = 0; r < passes.size(); ++r)
      for (std::size_t i = 0; i < passes[r].size(); ++i) {
        const Action& action = schedule.by_rank[r][i];
        stages[static_cast<std::size_t>(action.stage)][action.pass] += passes[r][i];
      }
  std::vector<PassTimes> means;
  const double each = 1.0 / (static_cast<double>(runs.size()) * schedule.micro_batches);
  for (Seconds& seconds : stages) {
    const double backward = seconds[Pass::backward], input = seconds[Pass::input_gradient],
                 weight = seconds[Pass::weight_gradient];
    const double to_weight = weight > 0 ? backward * weight / (input + weight) : 0;
    means.push_back({.forward = exact(seconds[Pass::forward] * each),
                     .input_gradient = exact((input + backward - to_weight) * each),
                     .weight_gradient = exact((weight + to_weight) * each)});
  }
  return means;
}

// The mean over ranks, because the closed forms assume equal ranks.
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

double seconds_without_messages(const Schedule& schedule, const Passes& passes) {
  return value_of(replayed(schedule, passes, 0).makespan());
}

BubbleRecord measured_bubble(Communicator& world, const Schedule& schedule,
                             const Executor& executor, const std::string& name,
                             const PipelineShape& shape, Count message_bytes) {
  const Rational hop =
      exact(world.transport().links().between.seconds(static_cast<double>(message_bytes)));
  std::vector<Passes> runs;
  double busy = 0, measured = 0, replay = 0;
  for (const RunSeconds& run : executor.runs()) {
    runs.push_back(passes_of_all(world, schedule, run.passes));
    for (const auto& of_rank : runs.back())
      busy = std::accumulate(of_rank.begin(), of_rank.end(), busy);
    double longest = run.whole;
    all_reduce(world, host_slice(std::span(&longest, 1)), ReduceOp::max);
    measured += world.size() * longest;
    replay += world.size() * value_of(replayed(schedule, runs.back(), hop).makespan());
  }
  const std::vector<PassTimes> times = mean_times(schedule, runs);
  BubbleRecord bubble{
      .fraction = 1 - busy / measured,
      .simulated_fraction = value_of(simulate_stages(schedule, times, hop).bubble_fraction()),
      .replayed_fraction = 1 - busy / replay};
  if (name.empty()) return bubble;
  const ScheduleEntry& entry = find_schedule(name);
  const PassTimes mean = of_a_rank(times, world.size());
  if (const auto expected = entry.makespan(complete(entry, shape), mean))
    bubble.expected_fraction =
        1 - value_of(Rational(schedule.micro_batches) * mean.total() / *expected);
  return bubble;
}

}  // namespace lockstep
