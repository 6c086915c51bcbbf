// How ranks see the operations of others, and learn that one has failed. Thread-safe.
#pragma once

#include <exception>
#include <functional>
#include <string_view>

#include "collectives/transport/signature.h"

namespace lockstep {

// Ranks announce their collectives here. A rank that waits compares them with its own.
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
  // Stops the world: every blocked rank wakes and throws an Error that names this rank and `cause`.
  // True if no rank had failed before.
  virtual bool abort(const std::exception& cause) = 0;
  // This rank leaves the group. The others continue; only ranks that wait for it get an Error.
  virtual void depart() = 0;
  // This rank stops: its other threads stop waiting and throw. abort() follows with the reason.
  virtual void abandon() = 0;
  // A function for a thread that belongs to no rank: it stops the world after the user's `signal`.
  // It may outlive this rank.
  using Stop = std::function<void(std::string_view signal)>;
  virtual Stop stopper() = 0;
};

}  // namespace lockstep
