#include "parallel/pipeline/simulate.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "parallel/pipeline/check.h"
#include "parallel/pipeline/play.h"

namespace lockstep {
namespace {

// What every time is a multiple of.
Rational tick_of(const std::vector<Rational>& times) {
  std::int64_t denominator = 1, numerator = 0;
  for (const Rational& time : times) denominator = std::lcm(denominator, time.denominator());
  for (const Rational& time : times)
    numerator = std::gcd(numerator, time.numerator() * (denominator / time.denominator()));
  return {std::max<std::int64_t>(numerator, 1), denominator};
}

std::int64_t ticks(const Rational& time, const Rational& tick) { return (time / tick).numerator(); }

// Ticks that an action takes, of its rank and its place in the rank's list.
using Duration = std::function<std::int64_t(std::size_t, std::size_t, const Action&)>;

class Simulation {
 public:
  Simulation(const Schedule& schedule, const Rational& tick, Duration duration)
      : duration_(std::move(duration)) {
    timeline_.tick = tick;
    timeline_.ranks.resize(schedule.by_rank.size());
    for (std::size_t r = 0; r < schedule.by_rank.size(); ++r)
      timeline_.ranks[r].intervals.reserve(schedule.by_rank[r].size());
    free_.resize(schedule.by_rank.size());
    held_.resize(schedule.by_rank.size());
  }

  // Returns when they end.
  std::int64_t run(int rank, std::span<const Action> block, std::int64_t inputs_at) {
    const auto r = static_cast<std::size_t>(rank);
    std::vector<Interval>& intervals = timeline_.ranks[r].intervals;
    const std::int64_t begin = std::max(free_[r], inputs_at);
    std::int64_t end = begin;
    for (std::size_t i = 0; i < block.size(); ++i)
      end += duration_(r, intervals.size() + i, block[i]);
    for (const Action& action : block) {
      intervals.push_back({action, begin, end});
      if (action.pass == Pass::forward) hold(r);
    }
    for (const Action& action : block) let_go(r, action.pass);
    timeline_.ranks[r].busy += end - begin;
    free_[r] = end;
    timeline_.end = std::max(timeline_.end, end);
    return end;
  }

  Timeline& timeline() { return timeline_; }

 private:
  struct Held {
    int in_flight = 0, unfinished = 0;
  };

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
  std::vector<std::int64_t> free_;  // when each rank has ended what it does
  std::vector<Held> held_;
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
  std::int64_t forward, input_gradient, weight_gradient;
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
    }
    return 0;
  }
};

}  // namespace

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
    all.insert(all.end(), {times.forward, times.input_gradient, times.weight_gradient});
  const Rational tick = tick_of(all);
  std::vector<StageTicks> stages;
  for (const PassTimes& times : by_stage)
    stages.push_back({ticks(times.forward, tick), ticks(times.input_gradient, tick),
                      ticks(times.weight_gradient, tick)});
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
  std::vector<PassTimes> by_stage;
  for (const int rank : rank_of) {
    const auto stages = std::ranges::count(rank_of, rank);
    by_stage.push_back({.forward = times.forward / stages,
                        .input_gradient = times.input_gradient / stages,
                        .weight_gradient = times.weight_gradient / stages});
  }
  return simulate_stages(schedule, by_stage, times.hop);
}

}  // namespace lockstep
