// The clock of a rank: real or virtual time.
#pragma once

namespace lockstep {

// Used by the thread that uses the transport. In virtual time every thread has its own time.
class RankClock {
 public:
  virtual ~RankClock() = default;
  virtual double now_seconds() const = 0;
  // The same clock at a fraction of the cost, with a resolution of a few milliseconds.
  virtual double about_now_seconds() const { return now_seconds(); }
  // Sleeps for `seconds`, or advances a virtual clock by them.
  virtual void advance(double seconds) = 0;
  // In virtual time: waits for all ranks of the group, which then continue at the same time. Costs
  // no time. Does nothing in real time.
  virtual void align() {}
  // In virtual time: identifies the thread that runs, of any rank. Null in real time.
  virtual const void* thread() const { return nullptr; }
};

// The machine's monotonic clock. Thread-safe.
RankClock& wall_clock();

// The machine's monotonic clock, in seconds since it started.
double steady_seconds();
double about_steady_seconds();
void sleep_for(double seconds);

}  // namespace lockstep
