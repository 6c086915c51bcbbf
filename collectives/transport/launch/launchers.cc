#include "collectives/transport/launch/launchers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collectives/base/build_id.h"
#include "collectives/base/error.h"
#include "collectives/base/limits.h"
#include "collectives/transport/launch/launch.h"
#include "collectives/transport/modules/modules.h"

namespace lockstep {
namespace {

constexpr std::string_view no_library;

// How a launcher tells a process that it is one of several: environment variables.
struct Launcher {
  std::string_view name;
  std::string_view library;        // the library with which its processes join a world; none: they
                                   // cannot
  std::vector<const char*> marks;  // all are set
  std::vector<const char*> sizes;  // one of them is the number of processes
};

// The first match counts. Open MPI's mpirun also sets variables of PMIx, and may run under srun.
const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> all = {
      {"mpirun", "openmpi", {"OMPI_COMM_WORLD_SIZE"}, {"OMPI_COMM_WORLD_SIZE"}},
      {"a launcher with PMIx",
       "openmpi",
       {"PMIX_RANK", "PMIX_NAMESPACE"},
       {"SLURM_STEP_NUM_TASKS", "FLUX_JOB_SIZE", "PMI_SIZE", "PALS_SIZE"}},
      {"a launcher with PMI", "mpich", {"PMI_SIZE"}, {"PMI_SIZE"}},
      {"srun", no_library, {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}, {"SLURM_STEP_NUM_TASKS"}},
      {"flux", no_library, {"FLUX_JOB_SIZE", "FLUX_TASK_RANK"}, {"FLUX_JOB_SIZE"}},
      {"PALS", no_library, {"PALS_RANKID"}, {"PALS_SIZE"}},
  };
  return all;
}

const Launcher* launcher() {
  const auto is_set = [](const char* variable) { return std::getenv(variable) != nullptr; };
  const auto found = std::ranges::find_if(
      launchers(), [&](const Launcher& each) { return std::ranges::all_of(each.marks, is_set); });
  return found == launchers().end() ? nullptr : &*found;
}

// The variable that says how many processes there are; null if none does.
const char* size_variable(const Launcher& launcher) {
  for (const char* const variable : launcher.sizes)
    if (std::getenv(variable)) return variable;
  return nullptr;
}

int number_in(const char* variable) {
  const std::string_view text = std::getenv(variable);
  int number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  require(failure == std::errc() && end == text.data() + text.size() && number >= 1,
          fmt::format("the environment variable {}={} is no number of processes", variable, text),
          fmt::format("unset {} unless a launcher started this process", variable));
  return number;
}

// "mpirun started 4 processes (OMPI_COMM_WORLD_SIZE=4)".
std::string launcher_text() {
  const Launcher& found = *launcher();
  const char* const variable = size_variable(found);
  return fmt::format("{} started {} processes ({}={})", found.name, std::getenv(variable), variable,
                     std::getenv(variable));
}

// A process cannot join a second time.
bool has_joined = false;

Joining joining_this_world() {
  return {.processes = processes_started(), .launcher = launcher_text()};
}

std::unique_ptr<ProcessWorld> join(const Joining& joining) {
  const bool is_mpich = launcher()->library == "mpich";
  auto* open = reinterpret_cast<OpenWorld*>(
      module_entry(launcher()->library, "lockstep_open_world",
                   is_mpich ? "mpich libmpich-dev" : "openmpi-bin libopenmpi-dev"));
  has_joined = true;
  return std::unique_ptr<ProcessWorld>(open(joining));
}

}  // namespace

std::string library_of_processes() {
  return processes_started() > 0 ? std::string(launcher()->library) : std::string();
}

int processes_started() {
  const Launcher* const found = launcher();
  if (!found) return 0;
  const char* const variable = size_variable(*found);
  require(variable != nullptr,
          fmt::format("{} started this process, but none of {} says how many it started",
                      found->name, fmt::join(found->sizes, ", ")),
          "start the ranks with mpirun, or as threads with --ranks");
  const int processes = number_in(variable);
  if (found->library != no_library) return processes;
  if (processes == 1) return 0;
  require(
      false,
      fmt::format("{} started {} processes ({}={}), but nothing with which MPI joins them: they "
                  "would be {} separate runs",
                  found->name, processes, variable, processes, processes),
      "use srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH), flux run -o pmi=pmix, or mpirun; "
      "srun --mpi=list shows what it offers");
  return 0;
}

double least_addresses(int ranks) {
  constexpr double of_program = 144e6, of_thread = 112e6, of_mpi = 250e6;  // measured
  const double threads = std::max<double>(ranks, std::thread::hardware_concurrency());
  return of_program + of_thread * threads + (launcher() ? of_mpi : 0);
}

int local_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID",
                               "PALS_LOCAL_RANKID", "PMI_LOCAL_RANK", "FLUX_TASK_LOCAL_ID"})
    if (const char* value = std::getenv(variable)) return std::atoi(value);
  return 0;
}

std::unique_ptr<ProcessWorld> join_world(double timeout_s, const Claims& claims) {
  Joining joining = joining_this_world();
  joining.timeout_s = timeout_s;
  joining.claims = claims;
  joining.claims.push_back({"the program's build", build_id()});
  return join(joining);
}

void require_processes(int asked, std::string_view flag) {
  const int processes = processes_started();
  require(
      processes == 0 || asked == processes,
      [&] { return fmt::format("{}, and {}", flag, launcher_text()); },
      "each process is one rank: omit the flag; if no launcher started this process, unset the "
      "variable");
}

bool refuse_world(std::string_view why) {
  try {
    // MPI_Init itself would fail if there are too few addresses.
    if (has_joined || processes_started() < 2 || address_limit() < least_addresses(1)) return false;
    Joining joining = joining_this_world();
    joining.refusal = why;
    join(joining);
  } catch (const Error& error) {
    return error.message().empty();
  }
  return false;
}

}  // namespace lockstep
