// Ctrl-C and SIGTERM during a run: the world stops with an error that says where it was, instead of
// the process ending silently.
#pragma once

#include <array>
#include <functional>
#include <string_view>
#include <thread>

#include "collectives/transport/failure/later_interruption.h"

namespace lockstep {

// While it lives, the first SIGINT or SIGTERM calls stop("SIGINT") in a thread of its own. Ranks that
// compute notice it only in their next operation. If the object still lives some seconds later, the
// process ends. A second signal ends it at once. One object at a time.
class Interruption {
 public:
  explicit Interruption(std::function<void(std::string_view signal)> stop);
  ~Interruption();
  Interruption(const Interruption&) = delete;

 private:
  void watch();

  std::function<void(std::string_view)> stop_;
  std::array<int, 2> pipe_{};  // the handler writes the signal's number, the destructor a zero
  std::jthread watcher_;
};

}  // namespace lockstep
