// For several worlds one after another with results that belong together: Ctrl-C and SIGTERM must
// not end the process between two worlds.
#pragma once

namespace lockstep {

// While it lives, SIGINT and SIGTERM that come between two worlds interrupt the next one. If there
// is no further world, they end the process when the object is destroyed. One object at a time.
class LaterInterruption {
 public:
  LaterInterruption();
  ~LaterInterruption();
  LaterInterruption(const LaterInterruption&) = delete;
};

}  // namespace lockstep
