// Simulates a schedule in exact arithmetic: when each action begins and ends, how long ranks idle,
// and how many micro-batches they hold.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/pipeline/schedules/pass_times.h"
#include "parallel/pipeline/schedules/schedule.h"

namespace lockstep {

struct Interval {
  Action action;
  std::int64_t begin = 0, end = 0;  // ticks
};

struct RankTimeline {
  std::vector<Interval> intervals;  // in the order of the rank's actions
  std::int64_t busy = 0;            // ticks; computing, not communicating
  // The most micro-batches, counted per stage, between the beginning of their forward pass and the
  // end of their backward pass (in_flight), or of their weight gradient (unfinished).
  int in_flight = 0, unfinished = 0;
  int unsharded = 0;  // the most stages whose parameters are gathered at once

  // The begin of the first action that computes, and the end of the last action.
  std::int64_t begin() const;
  std::int64_t end() const;
};

struct Timeline {
  Rational tick;  // all times are multiples of it
  std::vector<RankTimeline> ranks;
  std::int64_t end = 0;

  Rational time(std::int64_t ticks) const { return tick * ticks; }
  Rational makespan() const { return time(end); }
  Rational busy(int rank) const { return time(at(rank).busy); }
  // A rank's idle time: until the last rank is done, and between its own begin and end.
  Rational idle(int rank) const { return time(end - at(rank).busy); }
  Rational inner_idle(int rank) const {
    return time(at(rank).end() - at(rank).begin() - at(rank).busy);
  }
  // The longest time between a rank's own begin and end: the time per step if each rank begins its
  // next step at once, as the zero-bubble schedules assume.
  Rational period() const;
  // All ranks' idle time over all time, and over busy time.
  Rational bubble_fraction() const;
  Rational bubble_overhead() const;

 private:
  const RankTimeline& at(int rank) const { return ranks[static_cast<std::size_t>(rank)]; }
};

// An action of a stage takes the rank's time of that pass divided by the stages that the rank has.
// A message between two ranks takes a hop, whatever else a link carries; one inside a rank takes no
// time.
//
// Each rank has one communication stream, on which its unshards and reductions run in their order,
// overlapped with compute. A rank issues a collective when the action before it has been computed,
// and continues at once; an action that computes waits until its stage is unsharded. Resharding
// takes no time. A rank ends when its last action has, computed or reduced. Throws Error
// (bad_input) naming the cycle if ranks wait for each other for ever. The schedule is complete (see
// check.h).
Timeline simulate(const Schedule& schedule, const PassTimes& times);
// The same with the times of each stage's own passes.
Timeline simulate_stages(const Schedule& schedule, const std::vector<PassTimes>& by_stage,
                         const Rational& hop = 0);
// The same with the time of each action, by rank and its place in the rank's list.
Timeline simulate_actions(const Schedule& schedule, const std::vector<std::vector<Rational>>& times,
                          const Rational& hop = 0);

}  // namespace lockstep
