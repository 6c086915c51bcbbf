// Several worlds one after another, whose results count together: Ctrl-C and SIGTERM then must not end
// the process between two worlds.
#pragma once

#include <csignal>

namespace lockstep {

// While it lives, SIGINT and SIGTERM that come between two worlds interrupt the next one; if there is
// no other, they end the process when the object does.
class LaterInterruption {
 public:
  LaterInterruption();
  ~LaterInterruption();
  LaterInterruption(const LaterInterruption&) = delete;

 private:
  sigset_t before_;
};

}  // namespace lockstep
