// Measures one wait without delaying the message for which it waits.
#pragma once

#include <chrono>

#include "collectives/transport/wait_times.h"

namespace lockstep {

// The waiting loop calls look() before each check of its condition, or look_often() if it does not pause.
class CountedWait {
 public:
  using Clock = std::chrono::steady_clock;

  CountedWait(WaitTimes& times, int peer) : times_(times), peer_(peer) {}
  ~CountedWait() {
    times_.add(peer_, waited_);
    if (late_ > 0) times_.add_late(late_);
  }
  CountedWait(const CountedWait&) = delete;

  // In a loop without pauses reading the clock would cost more than a check.
  void look_often() {
    constexpr int looks_per_reading = 16;
    if (++looks_ % looks_per_reading == 0) look(Clock::now());
  }
  void look(Clock::time_point now) {
    // Longer than a process waits for its turn on a core that others share fairly.
    constexpr double longest_pause_s = 0.02;
    const double passed = begun_ ? std::chrono::duration<double>(now - last_).count() : 0;
    (passed > longest_pause_s ? late_ : waited_) += passed;
    last_ = now;
    begun_ = true;
  }

 private:
  WaitTimes& times_;
  int peer_;
  int looks_ = 0;
  bool begun_ = false;
  Clock::time_point last_;
  double waited_ = 0, late_ = 0;
};

}  // namespace lockstep
