#include "collectives/transport/mpi_loader.h"

#include <cstdlib>
#include <string>

#include "collectives/base/error.h"
#include "collectives/transport/modules.h"

namespace lockstep {
namespace {

// Environment variables with which a launcher tells its processes the number of ranks.
struct Library {
  const char* name;
  const char* size_variable;
  const char* local_rank_variable;
  const char* packages;
};
constexpr Library libraries[] = {
    {"openmpi", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "openmpi-bin libopenmpi-dev"},
    {"mpich", "PMI_SIZE", "MPI_LOCALRANKID", "mpich libmpich-dev"},
};

const Library* started_by() {
  for (const Library& library : libraries)
    if (std::getenv(library.size_variable)) return &library;
  return nullptr;
}

}  // namespace

int processes_started() {
  const Library* library = started_by();
  return library ? std::atoi(std::getenv(library->size_variable)) : 0;
}

int local_rank() {
  const Library* library = started_by();
  for (const char* name : {library ? library->local_rank_variable : "", "SLURM_LOCALID"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 0;
}

std::unique_ptr<ProcessWorld> open_process_world(double timeout_s) {
  const Library* library = started_by();
  require(library != nullptr, "this process was not started by mpirun");
  auto* open = reinterpret_cast<OpenWorld*>(
      module_entry(library->name, "lockstep_open_world", library->packages));
  return std::unique_ptr<ProcessWorld>(open(timeout_s));
}

}  // namespace lockstep
