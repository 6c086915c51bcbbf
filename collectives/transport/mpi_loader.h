// Detects whether mpirun or srun started this process, and loads the module for that MPI library.
#pragma once

#include <memory>

#include "collectives/transport/process_world.h"

namespace lockstep {

// Processes that mpirun or srun started; 0 if this one was started alone.
int processes_started();
// The rank of this process among those on its host.
int local_rank();
// Joins that world. Throws Error (bad_input) that names the package to install if there is no
// module for the library.
std::unique_ptr<ProcessWorld> open_process_world(double timeout_s);

}  // namespace lockstep
