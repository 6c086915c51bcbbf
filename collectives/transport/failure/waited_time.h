// How long a thread has waited, not counting the time in which its process was stopped or its
// machine suspended: then it could not check its condition, and the other ranks were probably also
// stopped.
#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

class WaitedTime {
 public:
  using Clock = std::chrono::steady_clock;

  // A waiting thread checks several times per second. A check that comes late counts as one that
  // came in time.
  double look(Clock::time_point now = Clock::now()) {
    constexpr std::chrono::duration<double> longest_between_looks{0.25};
    waited_ += std::min<std::chrono::duration<double>>(now - last_, longest_between_looks);
    last_ = now;
    return seconds();
  }
  // Seconds waited up to the last check.
  double seconds() const { return waited_.count(); }

 private:
  Clock::time_point last_ = Clock::now();
  std::chrono::duration<double> waited_{0};
};

}  // namespace lockstep
