// For several worlds one after another with results that belong together: Ctrl-C and SIGTERM must
// not end the process between two worlds.
#pragma once

namespace lockstep {

// While it lives, SIGINT and SIGTERM that no world has noticed, since they came between two worlds
// or after a world's last operation, interrupt the next one. If there is no further world, they end
// the process when the object is destroyed, unless an error ends it. One object at a time.
class LaterInterruption {
 public:
  LaterInterruption();
  ~LaterInterruption();
  LaterInterruption(const LaterInterruption&) = delete;
};

}  // namespace lockstep
