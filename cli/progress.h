// A progress line, on terminals only: how much is done, and the time left.
#pragma once

#include <chrono>
#include <string_view>

#include "parallel/plan/result.h"

namespace lockstep {

class Progress {
 public:
  explicit Progress(int total);
  ~Progress();
  // Of `total` steps or other things, as many are done; `text` is about the last one.
  void show(int done, std::string_view text = "");
  // With its loss and tokens per second.
  void show(const StepRecord& record);

 private:
  using Clock = std::chrono::steady_clock;
  int total_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now(), last_;
};

}  // namespace lockstep
