// Shows a watcher every message that a rank receives, before and after it changes the rank's data:
// to record the contributions that ranks hold, or to change the data. Windows are off, since their
// messages arrive unseen.
#pragma once

#include <memory>

#include "collectives/transport/decorators/decorator.h"

namespace lockstep {

// Ranks are those of the world.
struct Arrival {
  int rank = 0, from = 0;
  Slice data;            // where the message goes: into the rank's data, or into scratch
  bool reduces = false;  // added to what is there, not copied
};

class ArrivalWatch {
 public:
  virtual ~ArrivalWatch() = default;
  // On the receiving rank's thread. Watches of several ranks run at the same time.
  virtual void before(const Arrival& arrival) = 0;
  virtual void after(const Arrival& arrival) = 0;
};

// `watch` must outlive the transport.
std::unique_ptr<Transport> watched(std::unique_ptr<Transport> inner, ArrivalWatch& watch);

}  // namespace lockstep
