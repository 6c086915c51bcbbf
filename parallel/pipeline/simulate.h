// Plays a schedule against the clock, in exact arithmetic: when each action begins and ends, how
// long ranks idle, how many micro-batches they hold.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/pipeline/pass_times.h"
#include "parallel/pipeline/schedule.h"

namespace lockstep {

struct Interval {
  Action action;
  std::int64_t begin = 0, end = 0;  // ticks
};

struct RankTimeline {
  std::vector<Interval> intervals;
  std::int64_t busy = 0;  // ticks
  // The most micro-batches, stage by stage, that are between the beginning of their forward pass
  // and the end of their backward pass; and of their weight gradient, which is later where it is
  // apart.
  int in_flight = 0, unfinished = 0;

  std::int64_t begin() const { return intervals.empty() ? 0 : intervals.front().begin; }
  std::int64_t end() const { return intervals.empty() ? 0 : intervals.back().end; }
};

struct Timeline {
  Rational tick;  // what all times are multiples of
  std::vector<RankTimeline> ranks;
  std::int64_t end = 0;

  Rational time(std::int64_t ticks) const { return tick * ticks; }
  Rational makespan() const { return time(end); }
  Rational busy(int rank) const { return time(at(rank).busy); }
  // Until the last rank is done; and between the rank's own first and last action.
  Rational idle(int rank) const { return time(end - at(rank).busy); }
  Rational inner_idle(int rank) const {
    return time(at(rank).end() - at(rank).begin() - at(rank).busy);
  }
  // Of all ranks: idle time over all time, and over busy time.
  Rational bubble_fraction() const;
  Rational bubble_overhead() const;

 private:
  const RankTimeline& at(int rank) const { return ranks[static_cast<std::size_t>(rank)]; }
};

// An action of a stage takes the rank's time of that pass divided by the stages that the rank has.
// A message between two ranks takes a hop, one inside a rank nothing; as many as there are can be
// on their way. Throws Error (bad_input) naming the cycle when ranks wait for each other for ever.
// The schedule is complete (see check.h).
Timeline simulate(const Schedule& schedule, const PassTimes& times);
// The same with the times of each stage's own passes.
Timeline simulate_stages(const Schedule& schedule, const std::vector<PassTimes>& by_stage,
                         const Rational& hop = 0);
// The same with the time of each action, by rank and its place in the rank's list.
Timeline simulate_actions(const Schedule& schedule, const std::vector<std::vector<Rational>>& times,
                          const Rational& hop = 0);

}  // namespace lockstep
