// Files of killed jobs on this machine, which nothing else removes.
#pragma once

#include <filesystem>
#include <vector>

namespace lockstep {

// Shared memory that no process maps, and Open MPI's session folders whose mpirun no longer runs;
// only those of this user.
std::vector<std::filesystem::path> leftovers();

}  // namespace lockstep
