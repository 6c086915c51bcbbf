// A line that is rewritten while a run goes on: steps, loss, tokens a second, time left. On a
// terminal only.
#pragma once

#include <chrono>

#include "parallel/result.h"

namespace lockstep {

class Progress {
 public:
  explicit Progress(int total_steps);
  ~Progress();
  void show(const StepRecord& record);

 private:
  using Clock = std::chrono::steady_clock;
  int total_steps_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now(), last_;
};

}  // namespace lockstep
