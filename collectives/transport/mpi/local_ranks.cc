#include "collectives/transport/mpi/local_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// What `variable` was when the process started; empty if it was not set.
std::string variable_of(const std::string& environment, std::string_view variable) {
  const std::string begin = fmt::format("{}{}=", '\0', variable);
  const std::size_t found = environment.find(begin);
  if (found == std::string::npos) return "";
  const std::size_t value = found + begin.size();
  return environment.substr(value, environment.find('\0', value) - value);
}

// A process as /proc/PID/stat shows it.
struct State {
  std::string name;
  char letter = ' ';
  int parent = 0;
};

State state_of(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  State state;
  // The name is in parentheses and may contain any character.
  const std::size_t begin = line.find('('), end = line.rfind(')');
  if (begin == std::string::npos || end + 4 >= line.size()) return state;
  state.name = line.substr(begin + 1, end - begin - 1);
  state.letter = line[end + 2];
  state.parent = std::atoi(line.c_str() + end + 4);
  return state;
}

std::string environment_of(int process) {
  std::ifstream file(fmt::format("/proc/{}/environ", process), std::ios::binary);
  return '\0' + std::string(std::istreambuf_iterator<char>(file), {});
}

// What all processes of a job have in common: its name or, under MPICH's mpirun, the process that
// starts them on this host.
std::string job_of(int process, const std::string& environment) {
  for (const char* const variable : {"PMIX_NAMESPACE", "PMI_JOBID"})
    if (std::string name = variable_of(environment, variable); !name.empty()) return name;
  for (int ancestor = process; ancestor > 1;) {
    const State state = state_of(ancestor);
    if (state.name.starts_with("hydra_pmi")) return std::to_string(ancestor);
    ancestor = state.parent;
  }
  return "";
}

std::optional<int> rank_in(const std::string& environment) {
  for (const char* const variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const std::string rank = variable_of(environment, variable); !rank.empty())
      return std::atoi(rank.c_str());
  return std::nullopt;
}

}  // namespace

std::vector<LocalRank> local_ranks() {
  const std::string job = job_of(getpid(), environment_of(getpid()));
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  std::vector<LocalRank> ranks;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const int process = std::atoi(entry.path().filename().c_str());
    if (process == 0 || fs::read_symlink(entry.path() / "exe", ignored) != program) continue;
    const std::string environment = environment_of(process);
    const std::optional<int> rank = rank_in(environment);
    const bool is_stopped = state_of(process).letter == 'T';
    if (rank && job_of(process, environment) == job) ranks.push_back({*rank, process, is_stopped});
  }
  std::ranges::sort(ranks, {}, &LocalRank::rank);
  return ranks;
}

}  // namespace lockstep
