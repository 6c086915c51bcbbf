// The launcher's view of an MPI module: a world whose ranks are processes.
#pragma once

#include <exception>
#include <memory>

#include "collectives/transport/transport.h"

namespace lockstep {

class ProcessWorld {
 public:
  virtual ~ProcessWorld() = default;
  // This process's end of the world. Call once.
  virtual std::unique_ptr<Transport> transport() = 0;
  // Ends the program on this rank; call after the transport is destroyed. Throws Error if another
  // rank does not come to its end.
  virtual void finish() = 0;
  // The program threw: reports the cause to the other ranks and gives them time to read it. The
  // process ends soon after.
  virtual void fail(const std::exception& cause) = 0;
};

// A module exports this function under the name "lockstep_open_world".
using OpenWorld = ProcessWorld*(double timeout_s);

}  // namespace lockstep
