// A progress line, on terminals only: steps, loss, tokens per second, time left.
#pragma once

#include <chrono>

#include "parallel/plan/result.h"

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
