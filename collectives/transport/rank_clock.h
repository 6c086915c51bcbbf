// The clock of a rank: real time, or virtual time.
#pragma once

namespace lockstep {

// Used by the thread that uses the transport; under a virtual clock its time is that thread's own.
class RankClock {
 public:
  virtual ~RankClock() = default;
  virtual double now_seconds() const = 0;
  // The same clock with a resolution of a few milliseconds, for a fraction of the cost.
  virtual double about_now_seconds() const { return now_seconds(); }
  // Lets `seconds` pass: sleeps, or advances a virtual clock.
  virtual void pass(double seconds) = 0;
  // Under a virtual clock: waits for all ranks of the group, which then continue at the same time;
  // takes no time itself. Does nothing under a real clock.
  virtual void align() {}
};

// The machine's monotonic clock. Thread-safe.
RankClock& wall_clock();

// The machine's clock: seconds since it started.
double steady_seconds();
double about_steady_seconds();
void sleep_for(double seconds);

}  // namespace lockstep
