// A world whose ranks are processes: what a transport's module hands to the launcher.
#pragma once

#include <exception>
#include <memory>

#include "collectives/transport/transport.h"

namespace lockstep {

class ProcessWorld {
 public:
  virtual ~ProcessWorld() = default;
  // This process's end of the world. Once.
  virtual std::unique_ptr<Transport> transport() = 0;
  // The program is over on this rank; call after the transport is gone.
  virtual void finish() = 0;
  // The program threw: tells the other ranks why, and gives them a moment to hear it. The process
  // ends soon after.
  virtual void fail(const std::exception& cause) = 0;
};

// What a module exports under the name "lockstep_open_world".
using OpenWorld = ProcessWorld*(double timeout_s);

}  // namespace lockstep
