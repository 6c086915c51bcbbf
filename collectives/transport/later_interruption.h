// Several worlds one after another, whose results count together: Ctrl-C and SIGTERM must not end the
// process between two worlds.
#pragma once

namespace lockstep {

// While it lives, SIGINT and SIGTERM that come between two worlds interrupt the next one. If there is
// no other, they end the process when the object does. One object at a time.
class LaterInterruption {
 public:
  LaterInterruption();
  ~LaterInterruption();
  LaterInterruption(const LaterInterruption&) = delete;
};

}  // namespace lockstep
