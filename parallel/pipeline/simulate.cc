#include "parallel/pipeline/simulate.h"

#include <algorithm>
#include <numeric>

#include "parallel/pipeline/check.h"
#include "parallel/pipeline/play.h"

namespace lockstep {
namespace {

// What every time is a multiple of.
Rational tick_of(const std::vector<PassTimes>& by_stage, const Rational& hop) {
  std::int64_t denominator = 1, numerator = 0;
  std::vector<Rational> all = {hop};
  for (const PassTimes& times : by_stage)
    for (const Rational& time : {times.forward, times.input_gradient, times.weight_gradient})
      all.push_back(time);
  for (const Rational& time : all) denominator = std::lcm(denominator, time.denominator());
  for (const Rational& time : all)
    numerator = std::gcd(numerator, time.numerator() * (denominator / time.denominator()));
  return {std::max<std::int64_t>(numerator, 1), denominator};
}

class Simulation {
 public:
  Simulation(const Schedule& schedule, const std::vector<PassTimes>& by_stage,
             const Rational& hop) {
    timeline_.tick = tick_of(by_stage, hop);
    timeline_.ranks.resize(schedule.by_rank.size());
    for (std::size_t r = 0; r < schedule.by_rank.size(); ++r)
      timeline_.ranks[r].intervals.reserve(schedule.by_rank[r].size());
    hop_ = ticks(hop);
    free_.resize(schedule.by_rank.size());
    held_.resize(schedule.by_rank.size());
    for (const PassTimes& times : by_stage)
      durations_.push_back(
          {ticks(times.forward), ticks(times.input_gradient), ticks(times.weight_gradient)});
  }

  std::int64_t hop() const { return hop_; }

  // Returns when they end.
  std::int64_t run(int rank, std::span<const Action> block, std::int64_t inputs_at) {
    const auto r = static_cast<std::size_t>(rank);
    const std::int64_t begin = std::max(free_[r], inputs_at);
    std::int64_t end = begin;
    for (const Action& action : block) end += duration(action);
    for (const Action& action : block) {
      timeline_.ranks[r].intervals.push_back({action, begin, end});
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
  struct Durations {
    std::int64_t forward, input_gradient, weight_gradient;
  };

  std::int64_t ticks(const Rational& time) const { return (time / timeline_.tick).numerator(); }
  std::int64_t duration(const Action& action) const {
    const Durations& d = durations_[static_cast<std::size_t>(action.stage)];
    switch (action.pass) {
      case Pass::forward:
        return d.forward;
      case Pass::backward:
        return d.input_gradient + d.weight_gradient;
      case Pass::input_gradient:
        return d.input_gradient;
      case Pass::weight_gradient:
        return d.weight_gradient;
    }
    return 0;
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
  std::int64_t hop_ = 0;
  std::vector<std::int64_t> free_;  // when each rank has ended what it does
  std::vector<Held> held_;
  std::vector<Durations> durations_;  // by stage
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
  Simulation simulation(schedule, by_stage, hop);
  throw_deadlock(play(
      schedule,
      [&](int rank, std::span<const Action> block, std::int64_t inputs_at) {
        return simulation.run(rank, block, inputs_at);
      },
      simulation.hop()));
  return std::move(simulation.timeline());
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
