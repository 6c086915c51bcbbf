// A rank's own time in each step: what remains of the step without the time in which it waited for
// other ranks. A rank that computes slowly, or whose core is taken away, has more of it; the ranks
// that wait for it do not.
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "parallel/plan/result.h"

namespace lockstep {

class OwnTimes {
 public:
  // Adds a step. During `late` of the `exposed` seconds spent waiting, this rank did not run.
  void add(double seconds, double exposed, double late);
  double busy_seconds() const { return busy_; }
  // Means over steps; without the first step, which also allocates and loads, if there are others.
  OwnTime mean() const;

 private:
  int steps_ = 0;
  double first_own_ = 0, first_waited_ = 0;
  double own_ = 0, waited_ = 0;  // sums without the first step
  double busy_ = 0;
  // Means of own times of so many successive steps each, so that long runs need no more memory.
  std::vector<double> batches_;
  int per_batch_ = 1, in_open_batch_ = 0;
  double open_batch_ = 0;
};

// The ranks for which this one has waited longest so far, in order; at most 100.
std::vector<WaitedFor> longest_waits(const Communicator& world);
// Seconds for which this rank has waited, but did not run, so far.
double late_seconds(const Communicator& world);

}  // namespace lockstep
