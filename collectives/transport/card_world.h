// A world whose ranks have cards of their own: what NCCL's module hands to the launcher.
#pragma once

#include <memory>

#include "collectives/transport/transport.h"

namespace lockstep {

class CardWorld {
 public:
  // Before finish(): this rank gives up.
  virtual ~CardWorld() = default;
  // This rank's end of the world. Once.
  virtual std::unique_ptr<Transport> transport() = 0;
  // The program is over on this rank; call after the transport is gone. Returns when what was
  // enqueued is done, and throws the Error of what failed there.
  virtual void finish() = 0;
};

// What the module exports under the name "lockstep_open_cards". `control` is this rank's end of the
// world over the host; every rank calls it.
using OpenCards = CardWorld*(std::unique_ptr<Transport> control, Device& card, double timeout_s);

}  // namespace lockstep
