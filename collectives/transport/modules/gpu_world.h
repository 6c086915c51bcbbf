// The launcher's view of the NCCL module: a world in which each rank has its own GPU.
#pragma once

#include <memory>

#include "collectives/transport/transport.h"

namespace lockstep {

class GpuWorld {
 public:
  // If finish() was not called, this rank gives up.
  virtual ~GpuWorld() = default;
  // This rank's end of the world. Call once.
  virtual std::unique_ptr<Transport> transport() = 0;
  // Ends the program on this rank; call after the transport is destroyed. Returns when all enqueued
  // work is done. Throws its Error.
  virtual void finish() = 0;
};

// The module exports this function under the name "lockstep_open_gpus". `control` is this rank's
// end of the world over the host. Every rank calls it.
using OpenGpus = GpuWorld*(std::unique_ptr<Transport> control, Device& gpu, double timeout_s);

}  // namespace lockstep
