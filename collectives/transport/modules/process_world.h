// The launcher's view of an MPI module: a world whose ranks are processes.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "collectives/transport/failure/claims.h"
#include "collectives/transport/transport.h"

namespace lockstep {

class ProcessWorld {
 public:
  virtual ~ProcessWorld() = default;
  // This process's end of the world. Call once.
  virtual std::unique_ptr<Transport> transport() = 0;
  // Ends the program on this rank; call after the transport is destroyed. Throws Error if another
  // rank does not reach its end.
  virtual void finish() = 0;
  // The program threw: reports the cause to the other ranks and gives them time to read it. The
  // process ends soon after.
  virtual void fail(const std::exception& cause) = 0;
};

// The data with which a process joins a world.
struct Joining {
  double timeout_s = 30;     // for every wait
  int processes = 1;         // as the launcher says
  std::string launcher;      // "mpirun started 4 processes (OMPI_COMM_WORLD_SIZE=4)"
  Claims claims = {};        // must be equal on all ranks
  std::string refusal = {};  // why this process refuses its input; empty: it does not
};

// A module exports this function under the name "lockstep_open_world". It throws Error (bad_input)
// if the processes have not joined one world, disagree, or one of them refuses its input. If all have
// joined, rank 0 has reported the reason, and the error's message is empty. It ends the process with
// status 4 if not all ranks come in time.
using OpenWorld = ProcessWorld*(const Joining& joining);

}  // namespace lockstep
