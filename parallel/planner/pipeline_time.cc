#include "parallel/planner/pipeline_time.h"

#include <algorithm>
#include <cmath>

#include "parallel/pipeline/schedules/check.h"
#include "parallel/pipeline/schedules/play.h"

namespace lockstep {
namespace {

constexpr double ticks_per_second = 1e12;
std::int64_t ticks(double seconds) { return std::llround(seconds * ticks_per_second); }

class Replay {
 public:
  Replay(const Schedule& schedule, const std::vector<StagePasses>& by_stage)
      : schedule_(schedule), rank_of_(schedule.rank_of_stage()) {
    for (const StagePasses& stage : by_stage)
      for (const double seconds : {stage.forward, stage.input_gradient + stage.weight_gradient,
                                   stage.input_gradient, stage.weight_gradient})
        ticks_.push_back(ticks(seconds));
  }

  // Seconds that a rank computes, in the mean.
  double busy() const {
    std::int64_t sum = 0;
    for (const auto& actions : schedule_.by_rank)
      for (const Action& action : actions) sum += ticks_of(action);
    return static_cast<double>(sum) / ticks_per_second / schedule_.ranks();
  }
  double makespan(double hop, bool blocking) const {
    std::vector<std::int64_t> clock(schedule_.by_rank.size(), 0);
    const std::int64_t hop_ticks = ticks(hop);
    throw_deadlock(play(
        schedule_,
        [&](int rank, std::span<const Action> block, std::int64_t inputs_at) {
          std::int64_t& now = clock[static_cast<std::size_t>(rank)];
          now = std::max(now, inputs_at);
          for (const Action& action : block)
            now += ticks_of(action) + (blocking && is_sent(action) ? hop_ticks : 0);
          return now;
        },
        blocking ? 0 : hop_ticks));
    return static_cast<double>(std::ranges::max(clock)) / ticks_per_second;
  }

 private:
  std::int64_t ticks_of(const Action& action) const {
    const auto first = static_cast<std::size_t>(action.stage) * 4;
    switch (action.pass) {
      case Pass::forward:
        return ticks_[first];
      case Pass::backward:
        return ticks_[first + 1];
      case Pass::input_gradient:
        return ticks_[first + 2];
      case Pass::weight_gradient:
        return ticks_[first + 3];
      default:
        return 0;
    }
  }
  // Whether another rank waits for the result.
  bool is_sent(const Action& action) const {
    if (!has_output(action.pass)) return false;
    const int next = action.stage + (action.pass == Pass::forward ? 1 : -1);
    if (next < 0 || next >= schedule_.stages) return false;
    return rank_of_[static_cast<std::size_t>(next)] !=
           rank_of_[static_cast<std::size_t>(action.stage)];
  }

  const Schedule& schedule_;
  std::vector<int> rank_of_;
  std::vector<std::int64_t> ticks_;  // of forward, backward, input and weight gradient, by stage
};

}  // namespace

PipelineTimes pipeline_times(const Schedule& schedule, const std::vector<StagePasses>& by_stage,
                             double hop, bool blocking) {
  StagePasses mean;
  for (const StagePasses& stage : by_stage) {
    mean.forward += stage.forward / schedule.stages;
    mean.input_gradient += stage.input_gradient / schedule.stages;
    mean.weight_gradient += stage.weight_gradient / schedule.stages;
  }
  const std::vector<StagePasses> equal(by_stage.size(), mean);
  const double of_equal = Replay(schedule, equal).makespan(0, false);
  const Replay replay(schedule, by_stage);
  PipelineTimes times{.makespan = replay.makespan(hop, blocking), .busy = replay.busy()};
  const double without_messages = replay.makespan(0, false);
  times.bubble = std::min(of_equal, without_messages) - times.busy;
  times.imbalance = without_messages - times.busy - times.bubble;
  times.messages = times.makespan - without_messages;
  return times;
}

}  // namespace lockstep
