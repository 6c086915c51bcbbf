#include "collectives/transport/mpi_loader.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

// How a launcher tells its processes the number of ranks.
struct Library {
  const char* name;
  const char* size_variable;
  const char* packages;
};
constexpr Library libraries[] = {
    {"openmpi", "OMPI_COMM_WORLD_SIZE", "openmpi-bin libopenmpi-dev"},
    {"mpich", "PMI_SIZE", "mpich libmpich-dev"},
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

std::unique_ptr<ProcessWorld> open_process_world(double timeout_s) {
  const Library* library = started_by();
  require(library != nullptr, "this process was not started by mpirun");
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const auto path =
      program.parent_path().parent_path() / "lib" / fmt::format("liblockstep_{}.so", library->name);
  // MPI libraries load parts of themselves that look for their symbols globally.
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  require(module != nullptr,
          fmt::format("no transport for {}: {}", library->name, module ? "" : dlerror()),
          fmt::format("install {} and build again", library->packages));
  auto* open = reinterpret_cast<OpenWorld*>(dlsym(module, "lockstep_open_world"));
  require(open != nullptr, fmt::format("{} is not a transport module", path.string()),
          "build again");
  return std::unique_ptr<ProcessWorld>(open(timeout_s));
}

}  // namespace lockstep
