// How ranks learn what the others are doing, and that one of them has failed. Thread-safe.
#pragma once

#include <exception>

#include "collectives/transport/signature.h"

namespace lockstep {

// Where a rank announces its collectives; a rank that waits compares them with its own.
class OperationBoard {
 public:
  virtual ~OperationBoard() = default;
  // Announces the operation that this rank is in until leave(). Throws Error if the world has
  // failed.
  virtual void enter(const Call& call) = 0;
  virtual void leave() = 0;
};

class FailureBoard {
 public:
  virtual ~FailureBoard() = default;
  // Stops the world: every rank that is blocked in a call wakes and throws an Error that names this
  // rank and `cause`. True if no rank had failed before.
  virtual bool abort(const std::exception& cause) = 0;
  // This rank leaves the group and the others continue; only a rank that waits for it gets an
  // Error.
  virtual void depart() = 0;
  // This rank gives up: its own other threads throw from their waits at once. abort() follows with
  // the reason.
  virtual void abandon() = 0;
};

}  // namespace lockstep
