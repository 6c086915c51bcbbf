// Detects the launcher that started this process as one of several (mpirun, srun, ...), and loads the
// module of the MPI library with which they join one world.
#pragma once

#include <memory>
#include <string>

#include "collectives/transport/modules/process_world.h"

namespace lockstep {

// Processes that a launcher started; 0 if this one was started alone. Throws Error (bad_input) if it
// started several that MPI cannot join, or if their number is unknown.
int processes_started();
// The MPI library with which they join one world, openmpi or mpich; empty if this process was started
// alone.
std::string library_of_processes();
// Returns the addresses, in bytes, that this many ranks of this process need before they have any
// tensors.
double least_addresses(int ranks);
// The rank of this process among those on its host.
int local_rank();
// Joins that world. Throws Error (bad_input) that names the package to install if there is no module
// for the library. Also throws it if ranks have different claims, run a different build of the
// program, or refuse their input: rank 0 has then reported it, and the error's message is empty.
// Ends the process with status 4 if not all ranks come in time.
std::unique_ptr<ProcessWorld> join_world(double timeout_s, const Claims& claims);

}  // namespace lockstep
