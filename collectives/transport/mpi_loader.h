// Finds out whether mpirun or srun started this process, and loads the module for that MPI library.
#pragma once

#include <memory>

#include "collectives/transport/process_world.h"

namespace lockstep {

// Processes in the world that mpirun or srun started this one in; 0 when it was started alone.
int processes_started();
// Which of those on its host this process is.
int local_rank();
// Joins that world. Throws Error (bad_input) when there is no module for the library, naming the
// package to install.
std::unique_ptr<ProcessWorld> open_process_world(double timeout_s);

}  // namespace lockstep
