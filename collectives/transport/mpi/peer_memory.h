// Whether the kernel lets processes read each other's memory ("cross memory attach"), which MPI
// libraries use for long messages. Containers often forbid it.
#pragma once

#include <mpi.h>

#include <string>

namespace lockstep {

// "" or why the ranks of `comm`, all on one host, may not read each other's memory. Collective;
// the result is the same on every rank.
std::string refused_peer_memory(MPI_Comm comm);

}  // namespace lockstep
