#include "parallel/pipeline/simulator/simulate.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "parallel/pipeline/schedules/check.h"
#include "parallel/pipeline/schedules/play.h"

namespace lockstep {
namespace {

// Returns the largest time of which all of these are multiples.
Rational tick_of(const std::vector<Rational>& times) {
  std::int64_t denominator = 1, numerator = 0;
  for (const Rational& time : times) denominator = std::lcm(denominator, time.denominator());
  for (const Rational& time : times)
    numerator = std::gcd(numerator, time.numerator() * (denominator / time.denominator()));
  return {std::max<std::int64_t>(numerator, 1), denominator};
}

std::int64_t ticks(const Rational& time, const Rational& tick) { return (time / tick).numerator(); }

// Returns an action's ticks, by its rank and its place in the rank's list.
using Duration = std::function<std::int64_t(std::size_t, std::size_t, const Action&)>;

class Simulation {
 public:
  Simulation(const Schedule& schedule, const Rational& tick, Duration duration)
      : duration_(std::move(duration)) {
    timeline_.tick = tick;
    timeline_.ranks.resize(schedule.by_rank.size());
    for (std::size_t r = 0; r < schedule.by_rank.size(); ++r)
      timeline_.ranks[r].intervals.reserve(schedule.by_rank[r].size());
    streams_.resize(schedule.by_rank.size());
    held_.resize(schedule.by_rank.size());
    unsharded_at_.resize(static_cast<std::size_t>(schedule.stages));
  }

  // Returns when the block ends.
  std::int64_t run(int rank, std::span<const Action> block, std::int64_t inputs_at) {
    const auto r = static_cast<std::size_t>(rank);
    if (!is_compute(block.front().pass)) return communicate(r, block.front());
    std::vector<Interval>& intervals = timeline_.ranks[r].intervals;
    std::int64_t begin = std::max(streams_[r].compute, inputs_at);
    for (const Action& action : block) begin = std::max(begin, unsharded_at(action));
    std::int64_t end = begin;
    for (std::size_t i = 0; i < block.size(); ++i)
      end += duration_(r, intervals.size() + i, block[i]);
    for (const Action& action : block) {
      intervals.push_back({action, begin, end});
      if (action.pass == Pass::forward) hold(r);
    }
    for (const Action& action : block) let_go(r, action.pass);
    timeline_.ranks[r].busy += end - begin;
    streams_[r].compute = end;
    timeline_.end = std::max(timeline_.end, end);
    return end;
  }

  Timeline& timeline() { return timeline_; }

 private:
  // When each stream of a rank has ended its work so far.
  struct Streams {
    std::int64_t compute = 0, communication = 0;
  };
  struct Held {
    int in_flight = 0, unfinished = 0, unsharded = 0;
  };

  std::int64_t communicate(std::size_t rank, const Action& action) {
    RankTimeline& line = timeline_.ranks[rank];
    const bool is_local = action.pass == Pass::reshard;
    const std::int64_t begin = is_local
                                   ? streams_[rank].compute
                                   : std::max(streams_[rank].compute, streams_[rank].communication);
    const std::int64_t end = begin + duration_(rank, line.intervals.size(), action);
    line.intervals.push_back({action, begin, end});
    if (!is_local) streams_[rank].communication = end;
    if (action.pass == Pass::unshard) {
      unsharded_at(action) = end;
      line.unsharded = std::max(line.unsharded, ++held_[rank].unsharded);
    }
    if (action.pass == Pass::reshard) --held_[rank].unsharded;
    timeline_.end = std::max(timeline_.end, end);
    return end;
  }
  std::int64_t& unsharded_at(const Action& action) {
    return unsharded_at_[static_cast<std::size_t>(action.stage)];
  }

  void hold(std::size_t rank) {
    RankTimeline& line = timeline_.ranks[rank];
    line.in_flight = std::max(line.in_flight, ++held_[rank].in_flight);
    line.unfinished = std::max(line.unfinished, ++held_[rank].unfinished);
  }
  void let_go(std::size_t rank, Pass pass) {
    if (pass == Pass::backward || pass == Pass::input_gradient) --held_[rank].in_flight;
    if (pass == Pass::backward || pass == Pass::weight_gradient) --held_[rank].unfinished;
  }

  Timeline timeline_;
  Duration duration_;
  std::vector<Streams> streams_;  // by rank
  std::vector<Held> held_;
  std::vector<std::int64_t> unsharded_at_;  // by stage: when its last unshard ends
};

Timeline simulated(const Schedule& schedule, const Rational& tick, const Rational& hop,
                   Duration duration) {
  Simulation simulation(schedule, tick, std::move(duration));
  throw_deadlock(play(
      schedule,
      [&](int rank, std::span<const Action> block, std::int64_t inputs_at) {
        return simulation.run(rank, block, inputs_at);
      },
      ticks(hop, tick)));
  return std::move(simulation.timeline());
}

struct StageTicks {
  std::int64_t forward, input_gradient, weight_gradient, unshard, reduce_gradients;
  std::int64_t of(Pass pass) const {
    switch (pass) {
      case Pass::forward:
        return forward;
      case Pass::backward:
        return input_gradient + weight_gradient;
      case Pass::input_gradient:
        return input_gradient;
      case Pass::weight_gradient:
        return weight_gradient;
      case Pass::unshard:
        return unshard;
      case Pass::reshard:
        return 0;
      case Pass::reduce_gradients:
        return reduce_gradients;
    }
    return 0;
  }
};

}  // namespace

std::int64_t RankTimeline::begin() const {
  for (const Interval& interval : intervals)
    if (is_compute(interval.action.pass)) return interval.begin;
  return 0;
}

std::int64_t RankTimeline::end() const {
  std::int64_t last = 0;
  for (const Interval& interval : intervals) last = std::max(last, interval.end);
  return last;
}

Rational Timeline::period() const {
  std::int64_t longest = 0;
  for (const RankTimeline& rank : ranks) longest = std::max(longest, rank.end() - rank.begin());
  return time(longest);
}

Rational Timeline::bubble_fraction() const {
  std::int64_t busy_ticks = 0;
  for (const RankTimeline& rank : ranks) busy_ticks += rank.busy;
  const std::int64_t all = end * std::ssize(ranks);
  return all == 0 ? Rational(0) : Rational(all - busy_ticks, all);
}

Rational Timeline::bubble_overhead() const {
  const Rational fraction = bubble_fraction();
  return fraction / (1 - fraction);
}

Timeline simulate_stages(const Schedule& schedule, const std::vector<PassTimes>& by_stage,
                         const Rational& hop) {
  std::vector<Rational> all = {hop};
  for (const PassTimes& times : by_stage)
    all.insert(all.end(), {times.forward, times.input_gradient, times.weight_gradient,
                           times.unshard, times.reduce_gradients});
  const Rational tick = tick_of(all);
  std::vector<StageTicks> stages;
  for (const PassTimes& times : by_stage)
    stages.push_back({ticks(times.forward, tick), ticks(times.input_gradient, tick),
                      ticks(times.weight_gradient, tick), ticks(times.unshard, tick),
                      ticks(times.reduce_gradients, tick)});
  return simulated(schedule, tick, hop, [&](std::size_t, std::size_t, const Action& action) {
    return stages[static_cast<std::size_t>(action.stage)].of(action.pass);
  });
}

Timeline simulate_actions(const Schedule& schedule, const std::vector<std::vector<Rational>>& times,
                          const Rational& hop) {
  std::vector<Rational> all = {hop};
  for (const auto& of_rank : times) all.insert(all.end(), of_rank.begin(), of_rank.end());
  const Rational tick = tick_of(all);
  return simulated(schedule, tick, hop, [&](std::size_t rank, std::size_t place, const Action&) {
    return ticks(times[rank][place], tick);
  });
}

Timeline simulate(const Schedule& schedule, const PassTimes& times) {
  const std::vector<int> rank_of = schedule.rank_of_stage();
  std::unordered_map<int, std::int64_t> stages_of;
  for (const int rank : rank_of) ++stages_of[rank];
  std::vector<PassTimes> by_stage;
  for (const int rank : rank_of) {
    const std::int64_t stages = stages_of[rank];
    by_stage.push_back({.forward = times.forward / stages,
                        .input_gradient = times.input_gradient / stages,
                        .weight_gradient = times.weight_gradient / stages,
                        .unshard = times.unshard / stages,
                        .reduce_gradients = times.reduce_gradients / stages});
  }
  return simulate_stages(schedule, by_stage, times.hop);
}

}  // namespace lockstep
