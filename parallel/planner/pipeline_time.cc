#include "parallel/planner/pipeline_time.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "parallel/pipeline/schedules/check.h"
#include "parallel/pipeline/schedules/play.h"

namespace lockstep {
namespace {

constexpr double ticks_per_second = 1e12;
std::int64_t ticks(double seconds) { return std::llround(seconds * ticks_per_second); }

struct Ticks {
  std::int64_t busy = 0, delay = 0, issue = 0;
};
Ticks ticks(const IssuedKernels& kernels) {
  return {ticks(kernels.busy), ticks(kernels.delay), ticks(kernels.issue)};
}

// In which passes hosts may be behind their GPUs.
enum class Behind { never, in_forward, always };
bool is_behind(Behind behind, Pass pass) {
  return behind == Behind::always || (behind == Behind::in_forward && pass == Pass::forward);
}

class Replay {
 public:
  Replay(const Schedule& schedule, const std::vector<StagePasses>& by_stage)
      : schedule_(schedule), rank_of_(schedule.rank_of_stage()) {
    for (const StagePasses& stage : by_stage)
      for (const IssuedKernels& pass :
           {stage.forward, stage.backward, stage.input_gradient, stage.weight_gradient})
        ticks_.push_back(ticks(pass));
  }

  // Seconds that a GPU computes, in the mean.
  double busy() const {
    std::int64_t sum = 0;
    for (const auto& actions : schedule_.by_rank)
      for (const Action& action : actions) sum += ticks_of(action).busy;
    return static_cast<double>(sum) / ticks_per_second / schedule_.ranks();
  }
  double makespan(double hop, bool blocking, Behind behind) const {
    struct Clocks {
      std::int64_t gpu = 0, host = 0;
    };
    std::vector<Clocks> clocks(schedule_.by_rank.size());
    const std::int64_t hop_ticks = ticks(hop);
    throw_deadlock(play(
        schedule_,
        [&](int rank, std::span<const Action> block, std::int64_t inputs_at) {
          auto& [gpu, host] = clocks[static_cast<std::size_t>(rank)];
          gpu = std::max(gpu, inputs_at);
          if (std::ranges::any_of(block, [&](const Action& a) { return is_received(a); }))
            host = std::max(host, gpu);
          for (const Action& action : block) {
            const Ticks pass = ticks_of(action);
            gpu += pass.busy;
            if (is_behind(behind, action.pass)) gpu = std::max(gpu, host + pass.delay);
            host += pass.issue;
            if (blocking && is_sent(action)) gpu += hop_ticks;
          }
          return gpu;
        },
        blocking ? 0 : hop_ticks));
    std::int64_t last = 0;
    for (const auto& [gpu, host] : clocks) last = std::max(last, gpu);
    return static_cast<double>(last) / ticks_per_second;
  }

  // Whether some pass takes longer because of the host.
  bool waits_for_hosts() const {
    return std::ranges::any_of(ticks_, [](const Ticks& pass) { return pass.delay > pass.busy; });
  }

 private:
  Ticks ticks_of(const Action& action) const {
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
        return {};
    }
  }
  bool is_sent(const Action& action) const {
    return has_output(action.pass) &&
           is_elsewhere(action.stage + (action.pass == Pass::forward ? 1 : -1), action.stage);
  }
  bool is_received(const Action& action) const {
    const std::optional<Action> needed = needed_by(action, schedule_.stages);
    return needed && is_elsewhere(needed->stage, action.stage);
  }
  // Whether there is such a stage, on another rank than this one.
  bool is_elsewhere(int other, int stage) const {
    return other >= 0 && other < schedule_.stages &&
           rank_of_[static_cast<std::size_t>(other)] != rank_of_[static_cast<std::size_t>(stage)];
  }

  const Schedule& schedule_;
  std::vector<int> rank_of_;
  std::vector<Ticks> ticks_;  // of forward, backward, input and weight gradient, by stage
};

}  // namespace

StagePasses stage_passes(double forward, double input_gradient, double weight_gradient) {
  const auto pass = [](double busy) { return IssuedKernels{.busy = busy, .delay = busy}; };
  return {.forward = pass(forward),
          .backward = pass(input_gradient + weight_gradient),
          .input_gradient = pass(input_gradient),
          .weight_gradient = pass(weight_gradient)};
}

PipelineTimes pipeline_times(const Schedule& schedule, const std::vector<StagePasses>& by_stage,
                             double hop, bool blocking) {
  double forward = 0, input_gradient = 0, weight_gradient = 0;
  for (const StagePasses& stage : by_stage) {
    forward += stage.forward.busy / schedule.stages;
    input_gradient += stage.input_gradient.busy / schedule.stages;
    weight_gradient += stage.weight_gradient.busy / schedule.stages;
  }
  const std::vector<StagePasses> equal(by_stage.size(),
                                       stage_passes(forward, input_gradient, weight_gradient));
  const double of_equal = Replay(schedule, equal).makespan(0, false, Behind::never);
  const Replay replay(schedule, by_stage);
  const double of_gpus = replay.makespan(hop, blocking, Behind::never),
               without_messages = replay.makespan(0, false, Behind::never);
  PipelineTimes times{.makespan = of_gpus, .busy = replay.busy()};
  times.bubble = std::min(of_equal, without_messages) - times.busy;
  times.imbalance = without_messages - times.busy - times.bubble;
  times.messages = of_gpus - without_messages;
  if (replay.waits_for_hosts()) {
    const double in_forward = replay.makespan(hop, blocking, Behind::in_forward);
    times.makespan = replay.makespan(hop, blocking, Behind::always);
    times.waits = {in_forward - of_gpus, times.makespan - in_forward};
  }
  return times;
}

}  // namespace lockstep
